package cloudprovider

import (
	"context"
	"time"

	"github.com/awslabs/operatorpkg/status"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Provider is a cloud as the program uses it. A controller names the few of these methods that it needs as an interface of its own
// (Cloud in pkg/launch and pkg/lifecycle). All methods may be called concurrently; the functions that are registered (On...) must be
// registered before Run.
type Provider interface {
	Offerings
	Launcher
	Instances
	Health
	NodeClasses
	Drift
	Observer
	// Run keeps what is known of the cloud up to date, and the callbacks informed, until ctx ends.
	Run(ctx context.Context)
	// HoldChanged is called when another controller begins or ceases to lead. It doesn't block.
	HoldChanged()
	// Status returns an error that names which data of the cloud is missing or out of date, or nil.
	Status() error
}

// Offerings are what can be bought. Their methods answer from memory.
type Offerings interface {
	// InstanceTypes returns what a node class can run, or an error that says why it can't be used.
	InstanceTypes(nodeClass string) ([]*capacity.InstanceType, error)
	// OnChange registers a function that is called whenever InstanceTypes may return something else. It must not block.
	OnChange(f func())
	// OfferDedicated sets the node classes for which instances on single-tenant hardware are offered beside shared ones. A cloud without
	// such hardware ignores it.
	OfferDedicated(nodeClasses map[string]bool)
	// ReservationOver returns when the instances of a capacity reservation have to end, if that is known.
	ReservationOver(id string) (at time.Time, known bool)
}

// Launcher launches the instances of a batch. A launch that is repeated with a token launches nothing new.
type Launcher interface {
	Prepare(ctx context.Context, w capacity.LaunchBatch) (request []byte, err error)
	Launch(ctx context.Context, w capacity.LaunchBatch) (capacity.LaunchResult, error)
}

// Instances finds, tags and terminates instances. Where an error means that the instance doesn't exist, it wraps
// capacity.ErrInstanceNotFound.
type Instances interface {
	// List returns every instance of the cluster that isn't terminated.
	List(ctx context.Context) ([]capacity.Instance, error)
	// FindBatch returns the live instances tagged with a launch batch's token, sorted by id; FindClaim those tagged with a claim's name.
	FindBatch(ctx context.Context, token string) ([]capacity.Instance, error)
	FindClaim(ctx context.Context, name string) ([]capacity.Instance, error)
	Describe(ctx context.Context, id string) (capacity.Instance, error)
	TagClaim(ctx context.Context, id, claim, nodeName string) error
	// Terminate returns nil when the call was accepted or the instance had already ended.
	Terminate(ctx context.Context, id string) error
	// OnInterruption registers a function that is called when the cloud warns that instances end. It returns an error for each warning
	// that has to be repeated.
	OnInterruption(f func(context.Context, []capacity.Interruption) []error)
}

// NodeClasses resolves the objects of the cloud's NodeClassKind.
type NodeClasses interface {
	// SetNodeClass stores a version of the object from the watch. It is resolved while Run runs; until then the class is not ready.
	SetNodeClass(nc status.Object)
	DeleteNodeClass(name string)
	// ReleaseClass removes what was made in the cloud for a class that is about to be deleted and that no claim uses any more. It may be
	// called again.
	ReleaseClass(ctx context.Context, nc status.Object) error
	// UsedBy registers the function that returns the pools that use a node class, in the order in which they are tried. A cloud may check
	// beforehand whether it would launch what they ask for.
	UsedBy(pools func(nodeClass string) []*capacity.Pool)
	// OnNodeClass registers a function that is called with what a class was resolved to: an object with the name, the generation and the
	// status. It may block.
	OnNodeClass(f func(resolved status.Object))
	// ClusterCA returns the certificates with which nodes verify the API server, as base64 of PEM; false: not known yet.
	ClusterCA() (ca string, known bool)
}

// Observer learns from what becomes of instances. Its methods don't block and may be called again with the same facts.
type Observer interface {
	// ObserveNode is called for a registered node.
	ObserveNode(n RegisteredNode)
	// OnLearned registers a function that is given what was learned of a class, to be kept on the object as objects.AnnotationLearned.
	// Where it fails it is called again later.
	OnLearned(f func(nodeClass, value string) error)
	// NotJoined is called when an instance of a class and an offering has not become a node, Interrupted when its capacity is taken back,
	// RebalanceRecommended when the cloud recommends to leave it because that may happen.
	NotJoined(nodeClass string, o capacity.OfferKey)
	Interrupted(o capacity.OfferKey)
	RebalanceRecommended(o capacity.OfferKey)
}

// RegisteredNode is a node whose kubelet has registered.
type RegisteredNode struct {
	NodeClass string
	// NodeClassHash is the hash of the node class that the claim was made from; empty: not recorded.
	NodeClassHash string
	Name          string
	// InstanceID, InstanceType and ImageID are those of its instance.
	InstanceID, InstanceType, ImageID string
	// InternalIP, Capacity and Allocatable are as the kubelet reports them.
	InternalIP            string
	Capacity, Allocatable capacity.Resources
}
