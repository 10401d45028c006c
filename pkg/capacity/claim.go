package capacity

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// Claim is a NodeClaim in capacity words: the intent log of one node.
type Claim struct {
	Name string
	UID  string
	Pool string
	// NodeClass is the name under which the cloud knows the provider configuration.
	NodeClass string
	CreatedAt time.Time
	// Labels, Annotations, Taints and StartupTaints are what the Node will carry.
	Labels        map[string]string
	Annotations   map[string]string
	Taints        []corev1.Taint
	StartupTaints []corev1.Taint
	// ExpireAfter is how long the node is to live from CreatedAt; 0: for ever. DoNotDisrupt: it asks to be left alone.
	ExpireAfter  time.Duration
	DoNotDisrupt bool
	// Requests is the sum of planned pods and daemons; Largest what counts against limits until it is launched.
	Requests Resources
	Largest  Resources
	// LaunchBatch is the launch this claim belongs to, as recorded before the call; nil: not recorded yet.
	LaunchBatch *LaunchBatch
	// Slots are the pods planned for this node.
	Slots []Slot
	// Purchase is what the machine was bought for, in the words of the spending guard; nil: not recorded.
	Purchase *guard.Purchase
	// Order is what the claim asks for if it isn't one of a plan; nil otherwise.
	Order *Order
	// Unreadable is why what is recorded on the claim can't be understood, naming the field or annotation; empty normally. Such
	// a claim must not be launched: it may have been launched already.
	Unreadable string

	// Status.
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
	// InitializedAt is since when; zero: it isn't.
	InitializedAt time.Time
	// Served: the machine has done work (the spending guard's verdict), since ServedAt.
	Served   bool
	ServedAt time.Time
	Deleting bool
}

// Remaining is the share of its life that a node has before it, from 1 to 0.
func (c *Claim) Remaining(now time.Time) float64 {
	if c.ExpireAfter <= 0 {
		return 1
	}
	return min(max(1-float64(now.Sub(c.CreatedAt))/float64(c.ExpireAfter), 0), 1)
}

// mostOfAnything bounds what one machine is believed to have of a resource: far more than there is, and little enough that the
// sum of all claims of a pool doesn't overflow.
const mostOfAnything = 1 << 48

// Takes is what the claim counts for against its pool's limits, itself as a node included: what it has when it is launched, until
// then the largest it may become. The caller owns the result.
func (c *Claim) Takes() Resources {
	out := Resources{}
	if len(c.Capacity) > 0 {
		out.AtLeast(c.Capacity)
	} else {
		out.AtLeast(c.Largest)
		out.AtLeast(c.Requests) // of a claim that others have made no more is known
	}
	for name, v := range out {
		out[name] = min(max(v, 0), mostOfAnything)
	}
	out[ResourceNodes] = 1
	return out
}

// Order is a node that somebody asks for by writing its claim: by hand, or a Karpenter that was here before.
type Order struct {
	// Requirements are the claim's own and its labels.
	Requirements Requirements
	// Invalid is why the claim can't mean anything, naming fields; empty normally.
	Invalid string
	// Owner is the controller that made it, as kind and name; empty: a person, as it seems.
	Owner string
	// Provisioned: a pool's provisioner made it for pods, which are planned for anew. It is not launched.
	Provisioned bool
}

// Slot is a planned pod as it is recorded on its claim.
type Slot struct {
	Pod PodRef `json:"pod"`
	// Owner holds the slot instead of a pod that has not come yet.
	Owner types.UID `json:"owner,omitempty"`
	Class ClassKey  `json:"class"`
	// Order is the position in the plan's bind order; Group as in Placement, made unique across plans.
	Order int    `json:"order"`
	Group string `json:"group,omitempty"`
}

// LaunchBatch is a number of identical launches made by one call (docs/design/launch-batches.md).
type LaunchBatch struct {
	// Token is the client token and the tag of every instance of the launch batch: a hash of Claims and Attempt.
	Token   string `json:"token"`
	Attempt int    `json:"attempt"`
	// Claims are the names of the launch batch's claims, sorted. Instances are handed out in this order.
	Claims       []string `json:"claims"`
	Pool         string   `json:"pool"`
	NodeClass    string   `json:"nodeClass"`
	CapacityType string   `json:"capacityType"`
	// Offers to choose from, cheapest first.
	Offers []OfferKey `json:"offers"`
	// Request is the provider's exact request as it will be (or was) sent, opaque here. A launch that is repeated after a
	// crash sends these bytes' meaning again, never a new one under an old token.
	Request []byte  `json:"request,omitempty"`
	For     Purpose `json:"for,omitempty"`
	// Labels, Taints and StartupTaints go into user data. They are not recorded: the request has them.
	Labels        map[string]string `json:"-"`
	Taints        []corev1.Taint    `json:"-"`
	StartupTaints []corev1.Taint    `json:"-"`
	// Prices are those of Offers when overlays have set some of them: then they count, and not what the cloud asks for. Not recorded.
	Prices []float64 `json:"-"`
	// Requests is the largest of its claims' Requests, for what has to be asked for at launch to be there (EFA interfaces).
	// Not recorded either.
	Requests Resources `json:"-"`
}

// LaunchTimeout is how long a launch is retried before its claims are given up, as Karpenter has it. Claims that nobody launches, and
// instances that don't show, are given as long.
const LaunchTimeout = 5 * time.Minute

// Purpose is what a launch batch is launched for.
type Purpose string

const (
	// ForPods: those that are planned on its nodes. It is given up when they have gone.
	ForPods Purpose = ""
	// ForOrder: somebody asked for the node (Claim.Order). The claim stays when its launch fails.
	ForOrder Purpose = "order"
	// ForPool: its pool wants so many nodes (Pool.Replicas).
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
	InstanceStopping     InstanceState = "stopping"
	InstanceStopped      InstanceState = "stopped"
)

// Instance is a machine as the cloud describes it.
type Instance struct {
	ID           string
	ProviderID   string
	InstanceType string
	Zone         string
	CapacityType string
	ImageID      string
	State        InstanceState
	// NodeName is the name under which the kubelet is expected to register; empty until the cloud shows it. NameUnsure: it is
	// a guess, and no Node may be created ahead under it.
	NodeName   string
	NameUnsure bool
	InternalIP string
	// Hostname is the private DNS name, empty until the cloud shows it.
	Hostname   string
	LaunchedAt time.Time
	// LaunchBatch is the launch batch token the instance is tagged with, Claim the NodeClaim's name when it is tagged with one.
	LaunchBatch   string
	Claim         string
	Tags          map[string]string
	ReservationID string
	// Operator is the service that manages the instance for the account, EKS Auto Mode's for one; empty for the account's own.
	Operator string
	// Tenancy as in Offer.
	Tenancy string
	// Labels that only the launch decided (a partition of a placement group); nil: none.
	Labels map[string]string
	// EndReason is why the cloud ended the instance, in its own words; empty while it hasn't, or doesn't say.
	EndReason string
	// Taken: the cloud has ended the instance because it wanted its capacity back, which is nobody's fault.
	Taken bool
}

// Ended says that the instance is on its way out or out.
func (i *Instance) Ended() bool {
	return i.State == InstanceShuttingDown || i.State == InstanceTerminated
}

// Fate is what has become of the instance, as a clause: its state, and why where the cloud says it.
func (i *Instance) Fate() string {
	if i.EndReason == "" {
		return string(i.State)
	}
	return string(i.State) + ": " + i.EndReason
}

// LaunchResult is the outcome of a launch batch's call.
type LaunchResult struct {
	// Instances that were launched, sorted by id; may be fewer than asked for.
	Instances []Instance
	// Exhausted are the offers the cloud has no capacity for; the provider remembers them by itself.
	Exhausted []OfferKey
	// Again: the same offers are worth another try at once. It was a subnet that had no room, and the next request will name
	// another one.
	Again bool
	// Message says why instances are missing, for events.
	Message string
}

// Errors of the seams to the cloud and to the intent log, which wrap them.
var (
	// ErrInsufficientCapacity: none of the launch batch's offers can be had now. A new attempt with other offers may work at once.
	ErrInsufficientCapacity = errors.New("insufficient capacity")
	// ErrNodeClassNotReady: the node class is missing, invalid or not resolved.
	ErrNodeClassNotReady = errors.New("node class not ready")
	// ErrTokenMismatch: the token was used for another request. The launch batch must be given up and collected.
	ErrTokenMismatch = errors.New("launch batch token was used with another request")
	// ErrRequestStale: the recorded request names something that is gone (a launch template, an image). It will never work
	// again; a new attempt prepares another request.
	ErrRequestStale = errors.New("recorded request is stale")
	// ErrInstanceNotFound: the cloud does not know the instance. Soon after a launch that may be lag, not death.
	ErrInstanceNotFound = errors.New("instance not found")
	// ErrOverLimit: the claim would take its pool over one of its limits.
	ErrOverLimit = errors.New("over the pool's limit")
	// ErrThrottled: the cloud asks to slow down.
	ErrThrottled = errors.New("throttled")
	// ErrRefused: the cloud refuses the request as such (bad parameter, missing permission); repeating it won't help.
	ErrRefused = errors.New("refused by the cloud")
)
