package capacity

import (
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// Claim is a NodeClaim in the words of this package: the record of what is intended for one node.
type Claim struct {
	Name string
	UID  string
	Pool string
	// NodeClass is the name under which the cloud provider knows the node class.
	NodeClass string
	// Spare: the claim may exceed its static pool's limit of nodes by one, since its node replaces another. Used until the claim is written.
	Spare     bool
	CreatedAt time.Time
	// Labels, Annotations, Taints and StartupTaints are what the Node will have.
	Labels        map[string]string
	Annotations   map[string]string
	Taints        []corev1.Taint
	StartupTaints []corev1.Taint
	// ExpireAfter is how long the node may live from CreatedAt; 0: for ever. DoNotDisrupt: the claim asks not to be disrupted. Drifted: the node
	// isn't what its pool asks for now.
	ExpireAfter  time.Duration
	DoNotDisrupt bool
	Drifted      bool
	// Requests is the sum of the requests of the pods and daemons that were planned for the node. Largest is the largest capacity that the node may
	// get, which counts against limits until it is launched.
	Requests Resources
	Largest  Resources
	// LaunchBatch is the launch batch of this claim, as recorded before the cloud is asked to launch it; nil: not recorded yet.
	LaunchBatch *LaunchBatch
	// Slots are the reservations on this node.
	Slots []Slot
	// Purchase is what the instance was bought for, as the spending guard records it; nil: not recorded.
	Purchase *guard.Purchase
	// Order is what a standalone claim asks for, which a user wrote or a Karpenter left behind; nil: a plan or a static pool
	// made the claim.
	Order *Order
	// Unreadable says why a record on the claim can't be parsed, and names the field or annotation; normally empty. Such a claim must not
	// be launched: it may have been launched already.
	Unreadable string

	// The status.
	ProviderID   string
	NodeName     string
	ImageID      string
	InstanceType string
	Zone         string
	CapacityType string
	Capacity     Resources
	Allocatable  Resources
	Launched     bool
	Registered   bool
	Initialized  bool
	// InitializedAt is since when the node is initialized; zero: it isn't.
	InitializedAt time.Time
	// Served: the instance did what it was launched for (the spending guard's verdict), since ServedAt.
	Served   bool
	ServedAt time.Time
	Deleting bool
}

// Remaining returns the share of a node's life that is left, from 1 to 0.
func (c *Claim) Remaining(now time.Time) float64 {
	if c.ExpireAfter <= 0 {
		return 1
	}
	return min(max(1-float64(now.Sub(c.CreatedAt))/float64(c.ExpireAfter), 0), 1)
}

// mostOfAnything limits how much of a resource one claim may report: far more than any instance has, and little enough that the sum over
// all claims of a pool doesn't overflow.
const mostOfAnything = 1 << 48

// Shared reports whether the claim's instance may share its hardware with other accounts.
func (c *Claim) Shared() bool { return c.Labels[LabelTenancy] != "dedicated" }

// Instance returns what the claim records about its instance.
func (c *Claim) Instance() Instance {
	return Instance{ID: InstanceID(c.ProviderID), ProviderID: c.ProviderID, InstanceType: c.InstanceType, Zone: c.Zone, CapacityType: c.CapacityType, ImageID: c.ImageID}
}

// Takes returns how much of its pool's limits the claim uses: one node, and its capacity or, until it is launched, the largest capacity that it
// may get. The caller owns the result.
func (c *Claim) Takes() Resources {
	out := Resources{}
	if len(c.Capacity) > 0 {
		out.AtLeast(c.Capacity)
	} else {
		out.AtLeast(c.Largest)
		out.AtLeast(c.Requests) // a claim that another program made has no Largest
	}
	for name, v := range out {
		out[name] = min(max(v, 0), mostOfAnything)
	}
	out[ResourceNodes] = 1
	return out
}

// Order is a standalone request for a node: a NodeClaim that a user wrote, or that a Karpenter left behind.
type Order struct {
	// Requirements are the claim's requirements, and its labels as requirements.
	Requirements Requirements
	// Invalid says why the claim makes no sense, and names the fields; normally empty.
	Invalid string
	// Owner is the controller that made the claim, as kind and name; empty: none is known, so probably a person made it.
	Owner string
	// Provisioned: a NodePool owns the claim, so a provisioner (Karpenter's) made it for pods. The pods are planned for again, and the claim is not
	// launched.
	Provisioned bool
}

// Slot is a reservation as it is recorded on its claim.
type Slot struct {
	Pod PodRef `json:"pod"`
	// Owner is set instead of Pod while the reservation is for a pod that its owner has yet to create.
	Owner types.UID `json:"owner,omitempty"`
	Class ClassKey  `json:"class"`
	// Order is the position in the order in which the plan's pods are bound. Group is equal for reservations that depend on each other: none of their
	// pods may be bound before the nodes of all of them exist. It is unique across plans; empty: the reservation depends on no other.
	Order int    `json:"order"`
	Group string `json:"group,omitempty"`
}

// LaunchBatch is a number of identical launches made by one call of the cloud's API (docs/design/launch-batches.md).
type LaunchBatch struct {
	// Token is the client token and the tag of every instance of the launch batch: a hash of Claims and Attempt.
	Token   string `json:"token"`
	Attempt int    `json:"attempt"`
	// Claims are the names of the launch batch's claims, sorted. Instances are assigned in this order.
	Claims       []string `json:"claims"`
	Pool         string   `json:"pool"`
	NodeClass    string   `json:"nodeClass"`
	CapacityType string   `json:"capacityType"`
	// Offers are the offerings from which the cloud may choose, cheapest first.
	Offers []OfferKey `json:"offers"`
	// Request is the provider's exact request as it will be (or was) sent, opaque here. A launch that is repeated after a crash sends the
	// same request again, never a new one with an old token.
	Request []byte  `json:"request,omitempty"`
	For     Purpose `json:"for,omitempty"`
	// Labels, Taints and StartupTaints go into user data. They are not recorded, since the request contains them.
	Labels        map[string]string `json:"-"`
	Taints        []corev1.Taint    `json:"-"`
	StartupTaints []corev1.Taint    `json:"-"`
	// Prices are the prices of Offers in $/h, in the same order, if NodeOverlays have set some of them: then these count, not what the cloud asks
	// for. nil: what the cloud asks for counts. Not recorded.
	Prices []float64 `json:"-"`
	// Requests is the largest of its claims' Requests, for resources that have to be requested at launch (EFA interfaces). Not recorded
	// either.
	Requests Resources `json:"-"`
}

// LaunchedBy reports whether the claim's record says that the launch batch's call launches its instance.
func (c *Claim) LaunchedBy(w *LaunchBatch) bool {
	return c.LaunchBatch != nil && c.LaunchBatch.Token == w.Token
}

// LaunchTimeout is how long a launch is retried before its claims are given up, as in Karpenter. A claim is also given up if nothing has launched it
// for that time, or if the cloud has not shown its instance for that time.
const LaunchTimeout = 5 * time.Minute

// LaunchGrace is for how long after a launch a cloud may answer that it doesn't know the instance (ErrInstanceNotFound), to a lookup as well as to
// a termination. One such answer never means that the instance is gone. Code that has to terminate the instance asks again until the cloud knows
// it, or until the cloud has not known it for LaunchGrace.
const LaunchGrace = 2 * time.Minute

// Purpose is what a launch batch is for.
type Purpose string

const (
	// ForPods: for the pods that are planned on its nodes. It is given up when they are gone.
	ForPods Purpose = ""
	// ForOrder: for a standalone NodeClaim (Claim.Order), which stays when its launch fails.
	ForOrder Purpose = "order"
	// ForPool: to keep a static pool at its number of nodes (Pool.Replicas).
	ForPool Purpose = "pool"
)

// InstanceState is an EC2 instance's state name.
type InstanceState string

// Instance states as EC2 names them.
const (
	InstancePending      InstanceState = "pending"
	InstanceRunning      InstanceState = "running"
	InstanceShuttingDown InstanceState = "shutting-down"
	InstanceTerminated   InstanceState = "terminated"
	InstanceStopped      InstanceState = "stopped"
)

// Instance is an instance as the cloud describes it.
type Instance struct {
	ID           string
	ProviderID   string
	InstanceType string
	Zone         string
	CapacityType string
	ImageID      string
	State        InstanceState
	// NodeName is the name under which the kubelet is expected to register; empty until the cloud shows it. NameUnsure: the name is a
	// guess, and no Node may be created ahead under it.
	NodeName   string
	NameUnsure bool
	InternalIP string
	// Hostname is the private DNS name, empty until the cloud shows it.
	Hostname   string
	LaunchedAt time.Time
	// LaunchBatch is the launch batch token that the instance is tagged with. Claim is the NodeClaim's name, if it is tagged with one.
	LaunchBatch   string
	Claim         string
	Tags          map[string]string
	ReservationID string
	// Operator is the service that manages the instance for the account, such as EKS Auto Mode; empty for the account's own.
	Operator string
	// Tenancy as in Offer.
	Tenancy string
	// Labels are those that only the launch decided (a partition of a placement group); nil: none.
	Labels map[string]string
	// Annotations are those that the cloud wants on the instance's claim; nil: none.
	Annotations map[string]string
	// CloudInitialized: a cloud controller manager initializes the instance's Node, if the Node has the taint that asks for it.
	CloudInitialized bool
	// EndReason is why the cloud ended the instance, in its own words; empty if it hasn't, or doesn't say.
	EndReason string
	// Taken: the cloud ended the instance because it wanted its capacity back. That counts as no failure.
	Taken bool
}

// SameMachine reports whether what was recorded about an instance still holds.
func (i Instance) SameMachine(as Instance) bool {
	return i.ProviderID == as.ProviderID && i.InstanceType == as.InstanceType && i.Zone == as.Zone && i.CapacityType == as.CapacityType &&
		i.ReservationID == as.ReservationID && i.Tenancy == as.Tenancy && maps.Equal(i.Labels, as.Labels)
}

// Ended reports whether the instance is shutting down or terminated.
func (i *Instance) Ended() bool {
	return i.State == InstanceShuttingDown || i.State == InstanceTerminated
}

// Fate returns the instance's state as a clause, with the reason if the cloud gives one.
func (i *Instance) Fate() string {
	if i.EndReason == "" {
		return string(i.State)
	}
	return string(i.State) + ": " + i.EndReason
}

// LaunchResult is the result of a launch batch's call.
type LaunchResult struct {
	// Instances are those that were launched, sorted by id; they may be fewer than asked for.
	Instances []Instance
	// Exhausted are the offerings that the cloud has no capacity for. The provider remembers them by itself.
	Exhausted []OfferKey
	// Again: the same offerings may be tried again at once. A subnet had no free addresses, and the next request will use another subnet.
	Again bool
	// Message says why instances are missing, for events.
	Message string
}

// Errors that the interfaces to the cloud and to the claims' records wrap.
var (
	// ErrInsufficientCapacity: none of the launch batch's offerings is available now. A new attempt with other offerings may succeed at
	// once.
	ErrInsufficientCapacity = errors.New("insufficient capacity")
	// ErrNodeClassNotReady: the node class is missing, invalid or not resolved.
	ErrNodeClassNotReady = errors.New("node class not ready")
	// ErrTokenMismatch: the token was used for another request, so no call with it succeeds. Instances that it launched are found by their tag.
	ErrTokenMismatch = errors.New("launch batch token was used with another request")
	// ErrRequestStale: the recorded request names something that is gone (a launch template, an image). It will never succeed; a new
	// attempt prepares another request.
	ErrRequestStale = errors.New("recorded request is stale")
	// ErrInstanceNotFound: the cloud does not know the instance. Soon after a launch that may be eventual consistency, not the instance's
	// end (LaunchGrace).
	ErrInstanceNotFound = errors.New("instance not found")
	// ErrOverLimit: the claim would exceed one of its pool's limits.
	ErrOverLimit = errors.New("over the pool's limit")
	// ErrOverTotal: the claim would exceed a limit of all pools together.
	ErrOverTotal = errors.New("over the limit of all pools")
	// ErrOwnerUnknown: nothing may be launched, changed or terminated before it is known whether another controller owns nodes and claims.
	ErrOwnerUnknown = errors.New("it is not known yet whether Karpenter is active in this cluster")
	// ErrThrottled: the cloud throttles requests.
	ErrThrottled = errors.New("throttled")
	// ErrRefused: the cloud rejects the request itself (bad parameter, missing permission); repeating it won't help.
	ErrRefused = errors.New("refused by the cloud")
)
