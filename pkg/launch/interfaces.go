package launch

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// What the motor needs of its neighbours, each named here by the one who needs it.

// Cloud buys machines. InstanceTypes answers from memory; every other call may take long and has its own deadline.
type Cloud interface {
	InstanceTypes(nodeClass string) (types []*capacity.InstanceType, unready string)
	Prepare(ctx context.Context, w capacity.LaunchBatch) (request []byte, err error)
	Launch(ctx context.Context, w capacity.LaunchBatch) (capacity.LaunchResult, error)
	FindBatch(ctx context.Context, token string) ([]capacity.Instance, error)
	// FindClaim are the live instances tagged with a claim's name.
	FindClaim(ctx context.Context, name string) ([]capacity.Instance, error)
	Describe(ctx context.Context, id string) (capacity.Instance, error)
	TagClaim(ctx context.Context, id, claim, nodeName string) error
	Terminate(ctx context.Context, id string) error
}

// Claims is the intent log: NodeClaims, and the pools they belong to.
type Claims interface {
	// Problem is why nothing can be launched at all (a missing CRD), or "".
	Problem() string
	// WaitForSync returns when the claims have been read, or false when ctx ends first.
	WaitForSync(ctx context.Context) bool
	// Pools are the pools in the order in which they are tried, each with what its claims take, the reserved ones included.
	Pools(types func(nodeClass string) ([]*capacity.InstanceType, string)) []*capacity.Pool
	// Overlaid is an instance type as the overlays of a pool have it.
	Overlaid(pool string, t *capacity.InstanceType) *capacity.InstanceType
	Claims() []*capacity.Claim
	// Claim is the one of that name, or nil.
	Claim(name string) *capacity.Claim
	// Reserve counts claims that are about to be written against their pools' limits and says of each why it can't be had, or nil.
	Reserve(claims ...*capacity.Claim) []error
	// Release gives back what was reserved for a claim that won't be written; others are left alone.
	Release(name string)
	Create(ctx context.Context, c *capacity.Claim) (*capacity.Claim, error)
	// NodeClassProblem is why nothing can be launched with a class now, as far as its object tells, or "".
	NodeClassProblem(name string) string
	// NodeClassEnds asks past every cache whether an order with the class ends: there is no such class, or another controller says that it
	// is not ready. Without a reason it is tried again.
	NodeClassEnds(ctx context.Context, name string) (reason, why string, err error)
	// Take makes an order ours, before it is launched: its finalizer, what it counts for.
	Take(ctx context.Context, c *capacity.Claim) error
	// RecordRefused says on a claim why nothing is launched for it; again: it will be tried again.
	RecordRefused(ctx context.Context, name, reason, message string, again bool) error
	// RecordBatch and RecordLaunched are for this very claim: another one of its name is not found.
	RecordBatch(ctx context.Context, c *capacity.Claim, w capacity.LaunchBatch) error
	RecordSlots(ctx context.Context, name string, slots []capacity.Slot) error
	RecordLaunched(ctx context.Context, c *capacity.Claim, inst capacity.Instance, labels map[string]string, total, allocatable capacity.Resources) error
	RecordLaunchFailed(ctx context.Context, name, reason, message string) error
	// RecordNode writes what is known of the instance by the time its Node is there: the Node's name, the image.
	RecordNode(ctx context.Context, name string, inst capacity.Instance) error
	Delete(ctx context.Context, name string) error
	// StaticClaims is what the API server says now of a static pool, past every cache: how many nodes it wants, and its claims, true
	// for those that are on their way out. One that is gone or going is not there.
	StaticClaims(ctx context.Context, pool string) (replicas int64, there bool, claims map[string]bool, err error)
	// TaintSeen takes down that a fresh node of a pool's claim got a NoExecute taint that the claim doesn't declare; ExpectedTaints are
	// those that the pool's nodes are known to get. Both answer from memory.
	TaintSeen(pool, claim string, t corev1.Taint)
	ExpectedTaints(pool string) []corev1.Taint
	// ArchitecturesOpen takes down for which workloads nodes were planned that may be arm64 although neither pool nor pods say so. It answers
	// from memory.
	ArchitecturesOpen([]capacity.OpenArchitecture)
	// TellPool records an event on a NodePool.
	TellPool(pool, eventType, reason, note string)
	// TellClaim records an event on a NodeClaim.
	TellClaim(name, eventType, reason, note string)
}

// World is the scheduler's view of the cluster and its real filters. It is used by one goroutine at a time.
type World interface {
	Refresh(ctx context.Context) error
	// Nodes is the snapshot, each node as decorate returns it.
	Nodes(decorate func(*capacity.Node, *corev1.Node) *capacity.Node) []*capacity.Node
	Verify(ctx context.Context, t capacity.Trial) ([]capacity.Rejection, error)
}

// Planner decides what to buy.
type Planner interface {
	Plan(v *capacity.View, o capacity.Options) *capacity.Plan
}

// NodeBuilder makes Node objects: the one created ahead of the kubelet, and the hypothetical one for the filters.
type NodeBuilder interface {
	NodeFor(c *capacity.Claim, inst capacity.Instance, declaredFeatures []string) *corev1.Node
	PlannedNode(p *capacity.PlannedNode, name string) *corev1.Node
}

// Cluster is the API server, as far as the motor writes to it beyond claims.
type Cluster interface {
	CreateNode(ctx context.Context, n *corev1.Node) error
	// TryNode asks whether a Node could be created, with a dry run.
	TryNode(ctx context.Context, n *corev1.Node) error
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	// PodsOn are the pods that are bound to a name and haven't ended, from memory. They are shared and must not be changed.
	PodsOn(name string) []*corev1.Pod
	// EndPod ends a pod that nobody runs, without grace. One that has gone is no error.
	EndPod(ctx context.Context, pod *corev1.Pod) error
}

// Queue is the scheduling queue's door for pods whose gate has opened.
type Queue interface {
	Activate(pods []*corev1.Pod)
}

// Recorder writes events.
type Recorder interface {
	Pod(ref capacity.PodRef, eventType, reason, note string)
}
