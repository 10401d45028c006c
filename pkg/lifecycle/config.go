package lifecycle

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
)

// Instances is what the lifecycle of one node needs of the cloud. Where an error means that the instance doesn't exist, it wraps
// capacity.ErrInstanceNotFound; its text says what was being done with which instance.
type Instances interface {
	Describe(ctx context.Context, id string) (capacity.Instance, error)
	// Terminate returns nil when the call was accepted or the instance had already ended.
	Terminate(ctx context.Context, id string) error
	// TagClaim tags the instance with the names of its claim and its node.
	TagClaim(ctx context.Context, id, claim, nodeName string) error
}

// Inventory lists what the cloud has of this cluster.
type Inventory interface {
	// List returns every instance of the cluster that isn't terminated.
	List(ctx context.Context) ([]capacity.Instance, error)
	// FindBatch returns the live instances tagged with a launch batch's token, sorted by ID.
	FindBatch(ctx context.Context, token string) ([]capacity.Instance, error)
}

// Cloud is all that the lifecycle of nodes needs of the cloud.
type Cloud interface {
	Instances
	Inventory
	cloudprovider.Drift
}

// Config holds the parts of a Controller. All are required. The functions must not block.
type Config struct {
	Kube kubernetes.Interface
	// Informers is the scheduler's factory. HideEphemeralTaints has to be set on its Node informer.
	Informers informers.SharedInformerFactory
	// Claims reads NodeClaims from a cache and writes them; Live reads past the cache.
	Claims client.Client
	Live   client.Reader
	Cloud  Cloud
	// NodeClass is the label of the cloud's node classes, Kind their kind.
	NodeClass capacity.NodeClassLabel
	Kind      *cloudprovider.NodeClassKind
	// NodeFor builds the Node of a launched claim as it is created ahead of the kubelet.
	NodeFor func(claim *karpv1.NodeClaim, inst capacity.Instance) (*corev1.Node, error)
	// Brake bounds how many instances without owner are terminated per minute.
	Brake *brake.Brake
	// Registered is called for each registered node, once per process, so that others can learn from what its kubelet reports.
	Registered func(claim *karpv1.NodeClaim, node *corev1.Node)
	// Registering is called with the claim's Node before pods may be bound to it, perhaps more than once.
	Registering func(claim, node, providerID string)
	// Close makes this process's own scheduler keep pods off a terminating Node, from the time when Close returns. It reports whether pods that
	// were let through before are still being bound there.
	Close func(node, providerID string) (bindsInFlight bool)
	// NotRegistered is called for a claim that was given up because it has not become a node in time.
	NotRegistered func(claim *karpv1.NodeClaim, message string)
	// GivingUp is called with the reason before a claim is given up, perhaps more than once. fault says what the spending guard counts against the
	// instance or its pods; nil: nothing, giving it up is no failure.
	GivingUp func(claim, why string, fault *guard.Fault)
	// ExpectedTaints returns the taints that new nodes of a pool are known to get although the pool doesn't declare them: they are treated
	// like its startup taints.
	ExpectedTaints func(pool string) []corev1.Taint
	// RegistrationTimeout is how long after its launch an instance may be without kubelet.
	RegistrationTimeout time.Duration
	// StartupTimeout is how long after its registration a node may have startup taints, if it is Ready, has no other taint that must go,
	// has all resources that were requested of it, runs no pods yet, and pods wait for it. The agents that remove the taints may have much
	// to do, and another instance would have to wait for the same.
	StartupTimeout time.Duration
	// Awaited reports whether pods wait for the claim's node.
	Awaited func(claim string) bool
	// Hold returns why nothing may be changed now (another controller owns these objects), or nil.
	Hold     func() error
	Recorder events.EventRecorder
	Clock    clock.WithTicker
}
