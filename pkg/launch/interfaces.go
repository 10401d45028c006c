package launch

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// What the controllers use of other packages.

// Cloud launches instances. InstanceTypes answers from memory; every other call may take long and has its own deadline.
type Cloud interface {
	InstanceTypes(nodeClass string) ([]*capacity.InstanceType, error)
	Prepare(ctx context.Context, w capacity.LaunchBatch) (request []byte, err error)
	Launch(ctx context.Context, w capacity.LaunchBatch) (capacity.LaunchResult, error)
	FindBatch(ctx context.Context, token string) ([]capacity.Instance, error)
	// FindClaim returns the live instances tagged with a claim's name.
	FindClaim(ctx context.Context, name string) ([]capacity.Instance, error)
	Describe(ctx context.Context, id string) (capacity.Instance, error)
	TagClaim(ctx context.Context, id, claim, nodeName string) error
	Terminate(ctx context.Context, id string) error
}

// ClaimLog stores NodeClaims, which are the intent log, and knows the pools they belong to.
type ClaimLog interface {
	// Problem returns why nothing can be launched at all (a missing CRD), or nil.
	Problem() error
	// WaitForSync returns when the claims have been read, or false when ctx ends first.
	WaitForSync(ctx context.Context) bool
	// Pools returns the pools in the order in which they are tried, each with its usage of its limits. Claims that Reserve has counted and
	// that are not written yet are included.
	Pools(types func(nodeClass string) ([]*capacity.InstanceType, error)) []*capacity.Pool
	// Overlaid returns an instance type with the overlays of a pool applied.
	Overlaid(pool string, t *capacity.InstanceType) *capacity.InstanceType
	Claims() []*capacity.Claim
	// Claim returns the claim of that name, or nil.
	Claim(name string) *capacity.Claim
	// Reserve counts claims that are about to be written against the limits of their pools. It returns one error per claim: why a limit
	// doesn't allow it, or nil.
	Reserve(claims ...*capacity.Claim) []error
	// Release undoes Reserve for a claim that won't be written. It does nothing for a claim that isn't reserved.
	Release(name string)
	Create(ctx context.Context, c *capacity.Claim) (*capacity.Claim, error)
	// NodeClassProblem returns why nothing can be launched with a node class now, as far as its object shows, or nil.
	NodeClassProblem(name string) error
	// NodeClassEnds asks the API server, past every cache, whether a standalone NodeClaim with the node class has to end: there is no such
	// class, or another controller reports that it is not ready. If reason is empty the launch is tried again.
	NodeClassEnds(ctx context.Context, name string) (reason, why string, err error)
	// Take adds our finalizer to a standalone NodeClaim, and records what it counts for, before it is launched.
	Take(ctx context.Context, c *capacity.Claim) error
	// RecordRefused records on a claim why nothing is launched for it. again says that the launch will be tried again.
	RecordRefused(ctx context.Context, name, reason, message string, again bool) error
	// RecordBatch, RecordLaunched and RecordLaunchFailed write to this very claim: if another claim has its name now, they return a NotFound error.
	RecordBatch(ctx context.Context, c *capacity.Claim, w capacity.LaunchBatch) error
	// RecordBatchUnlessLater is RecordBatch unless the API server, asked past every cache, has a later attempt recorded on the claim, or its
	// instance: then it returns the claim as it is there, and so does Claim from then on.
	RecordBatchUnlessLater(ctx context.Context, c *capacity.Claim, w capacity.LaunchBatch) (later *capacity.Claim, err error)
	RecordSlots(ctx context.Context, name string, slots []capacity.Slot) error
	RecordLaunched(ctx context.Context, c *capacity.Claim, inst capacity.Instance, labels map[string]string, total, allocatable capacity.Resources) error
	RecordLaunchFailed(ctx context.Context, c *capacity.Claim, reason, message string) error
	// RecordNode records what is known about the instance once its Node exists: the Node's name and the image.
	RecordNode(ctx context.Context, name string, inst capacity.Instance) error
	// Delete deletes the claim with that UID; if uid is empty, whatever claim has the name.
	Delete(ctx context.Context, name, uid string) error
	// Drop deletes a claim unless the API server, asked past every cache, has a launch recorded on it: then it returns the claim as it is
	// there, and so does Claim from then on.
	Drop(ctx context.Context, name string) (launched *capacity.Claim, err error)
	// StaticClaims asks the API server, past every cache, how many nodes a static pool wants and which claims it has, by name; true marks a
	// claim that is being deleted. there is false if the pool is gone or being deleted.
	StaticClaims(ctx context.Context, pool string) (replicas int64, there bool, claims map[string]bool, err error)
	// TaintSeen records that a new node of a pool's claim got a NoExecute taint that the claim doesn't declare. ExpectedTaints returns the
	// taints that nodes of the pool are known to get. Both answer from memory.
	TaintSeen(pool, claim string, t corev1.Taint)
	ExpectedTaints(pool string) []corev1.Taint
	// ArchitecturesOpen records the workloads for which planned nodes may be arm64 although neither pool nor pods say so. It answers from
	// memory.
	ArchitecturesOpen([]capacity.OpenArchitecture)
	// TellPool records an event on a NodePool.
	TellPool(pool, eventType, reason, note string)
	// TellClaim records an event on a NodeClaim.
	TellClaim(name, eventType, reason, note string)
}

// NodeBuilder builds Node objects: the one created ahead of the kubelet, and the hypothetical one for the filters.
type NodeBuilder interface {
	NodeFor(c *capacity.Claim, inst capacity.Instance, declaredFeatures []string) *corev1.Node
	PlannedNode(p *capacity.PlannedNode, name string) *corev1.Node
}

// Cluster is the API server for what is written besides claims.
type Cluster interface {
	CreateNode(ctx context.Context, n *corev1.Node) error
	// TryNode checks with a dry run whether a Node could be created.
	TryNode(ctx context.Context, n *corev1.Node) error
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	// PodsOn returns, from memory, the pods that are bound to a node name and haven't ended. They are shared and must not be changed.
	PodsOn(name string) []*corev1.Pod
	// EndPod deletes a pod that no kubelet runs, without grace period. It returns nil if the pod is already gone.
	EndPod(ctx context.Context, pod *corev1.Pod) error
}
