package ledger

import (
	"cmp"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/antiaffinity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/booked"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/boots"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/pieces"
)

// Ledger holds all nodes, pods and reservations. It is not safe for concurrent use.
type Ledger struct {
	nodes      map[string]*node   // by key: the claim's name, or the Node's name for nodes without a claim
	everyNode  pieces.List[*node] // all nodes, for TickNodes; one that is gone stays until TickNodes comes to it
	byName     map[string]*node   // by Node name, once known
	pods       map[types.UID]*pod
	queued     []*pod            // the pods in state Queued, in no order
	everyPod   pieces.List[*pod] // all pods, for TickPods; a removed pod stays until TickPods comes to it
	classes    map[capacity.ClassKey]*class
	everyClass pieces.List[*class]                   // all classes, for TickClasses; a dropped class stays until TickClasses comes to it
	apart      *antiaffinity.Index                   // which classes must not share a node with each other (see Apart)
	left       map[capacity.ClassKey]*capacity.Class // classes planned on nodes that have left the ledger since the last TickPods (see recallApart)
	// assumed holds the pods of every profile that are between Reserve and the end of their binding, by Node name.
	assumed map[string]map[types.UID]binding
	held    map[types.UID][]*slot // the slots reserved for pods that don't exist yet, by owner, in plan order
	// surges is the number of slots reserved for a Deployment's next pods, whichever of its ReplicaSets creates them, by Deployment.
	surges   map[string]int
	buffers  map[types.UID]*buffer         // CapacityBuffers
	bookings map[types.UID]*booked.Booking // ProvisioningRequests
	boots    map[string]*boots.Times       // how long nodes take to register, by capacity.NodeKind.Boot
	patience Patience
	// Why the next round of TickPods plans for refused pods again, and why the present one does.
	next, round anew
	changes     int // how often Changed was called
	rejected    []Rejected
	out         Effects
	seq         int // the highest slot.order that was given so far
	arrivals    int // number of pods and nodes added so far
}

// Effects are what the caller has to do after one or more events.
type Effects struct {
	// Activate lists the pods whose gate opened, in the order in which the ledger opened them. The scheduling queue orders pods that it
	// receives together by its own QueueSort.
	Activate []capacity.PodRef
	// Cancel lists claims that no pod needs any more and that were not launched yet.
	Cancel []string
	// End lists claims that were launched for a plan that was given up, and that no other pod was planned on since.
	End []string
	// Plan reports that there are queued pods.
	Plan bool
	// Buffers reports that chunks of CapacityBuffers have no capacity, or may have lost theirs to pods.
	Buffers bool
	// Words are texts for pods' events: reservations that were lost and are not planned again at once.
	Words []Word
	// Waits are texts for pods' events, too: what pods wait for on nodes that exist.
	Waits []Word
	// Tainted lists taints on new nodes that keep off pods the nodes were bought for, and that the NodePools may not have declared.
	Tainted []Tainted
}

// Tainted is a taint and the claim whose node has it.
type Tainted struct {
	Claim string
	Taint corev1.Taint
}

// Word is a text for a pod's events.
type Word struct {
	Ref  capacity.PodRef
	Note string
}

// Empty reports whether there is nothing to do.
func (e Effects) Empty() bool {
	return len(e.Activate) == 0 && len(e.Cancel) == 0 && len(e.End) == 0 && !e.Plan && !e.Buffers && len(e.Words) == 0 && len(e.Waits) == 0 && len(e.Tainted) == 0
}

// State is the state of a pod.
type State int

// The states drawn in the package comment.
const (
	Unknown State = iota
	Queued
	Planned
	Open
	Assumed
	Refused
)

type pod struct {
	ref        capacity.PodRef
	class      *class
	owner      types.UID // the pod's own owner; class.Pod is the first pod of the class, which may have another
	deployment string    // the Deployment of that owner (objects.DeploymentOf)
	// arrival is the pod's position in the order in which pods were added.
	arrival     int
	removed     bool
	state       State
	at          int   // Queued: its place in Ledger.queued
	slot        *slot // the slot that Pin gave it; nil while Planned, and while Open until its scheduling cycle begins
	since       time.Time
	why         string    // what it waits for, or why it was refused
	retry       time.Time // Refused: when to plan again; zero: when something changes
	failed      int       // consecutive launches or placements that did not get it bound
	turned      bool      // Assumed: it was Refused before
	adoptedFrom types.UID // the owner for whose next pod its slot was reserved
	broken      bool      // Refused: because its reservation was lost
	soon        bool      // Refused: capacity for it is expected so soon that no pod is evicted for it
	behind      bool      // Refused: not scheduled for a while, lest it take topology domains that planned pods of its class need (siblings)
	until       time.Time // Open: when its slot is taken back if it isn't bound by then; zero: the next TickPods sets it (overdue)
	unbound     failures  // consecutive failures to bind it to its slot
	// early counts the pod's consecutive scheduling cycles that ended before Binder's PreFilter, which asks for the pod's slot. wake is
	// when the pod is activated again (see awaken.go); zero: it need not be.
	early int
	wake  time.Time
	// stale: it was queued again without a new Submit. Its class is that of its last scheduling cycle, and may be outdated (see Renew).
	stale bool
	// These describe a pod that is queued again after a refusal. told: the reason of that refusal. heard: a cycle of the pod has failed since, and since
	// reserved capacity was last released. held: a query (Gate, Pin) or Submit has kept the scheduler from trying the pod since it was queued.
	told  string
	heard bool
	held  atomic.Bool
}

type class struct {
	*capacity.Class
	pods     int       // number of entries in Ledger.pods, in any state
	slots    []*slot   // its slots, except those whose pods are assumed, in plan order
	waiting  []*pod    // Planned pods, in the order of their plans
	failed   int       // how often in a row its pods lost their reservations instead of being bound; pods that fail together count once
	next     time.Time // failures before this time are not added to failed: they happened together with the last one
	refused  int       // consecutive plans without capacity for it, for a reason that may pass by itself
	patient  time.Time // refusals before this time are not added to refused: they belong to the same plan
	changes  int       // the value of Ledger.changes when refused was last counted
	lost     int       // how often in a row nodes that its pods were bound to never registered; nodes that fail together count once
	lostWhy  string    // what happened to the most recent of these nodes
	rest     time.Time // once lost is 2 or more, no node is planned for new pods of the class before this time
	gone     bool      // it isn't in Ledger.classes any more
	placed   int       // how often a pod of the class was assumed
	caughtUp int       // the value of placed when catchUp last looked at the class
	// Its pods in the states Queued, Refused and Open, so that no step has to look for them among all pods.
	queued, refusedPods map[*pod]bool
	open                []*pod  // those that have no slot yet, in the order of bySince
	free                []*slot // the ready slots that have neither a pod nor an owner, in plan order
}

type slot struct {
	class *class
	node  *node
	order int       // its place in plan order: a later slot has a higher number
	free  bool      // it is in class.free
	group *group    // nil: it becomes ready independently of other slots
	pod   *pod      // the pod that Pin gave it to; nil: none yet
	owner types.UID // the controller, or ProvisioningRequest, for whose next pod it is reserved; empty: for a pod that exists
	until time.Time // end of the reservation for an owner
	// deployment is a Deployment whose next pod may take the slot, too, whichever of its ReplicaSets creates it; empty: only the owner's pods may.
	deployment string
	// leaving is the node whose pods will be replaced here; empty: the slot is for pods that are about to be created anyway.
	leaving string
	// early: the drain of the node leaving has not begun. Until then the owner's next pods don't get the slot, and pending pods may (see Reserve).
	early bool
	ready bool // its pod may be bound now
	// behind: a spread or an affinity refused its pod, so it isn't ready until other pods of its class are bound. placed: class.placed then.
	behind  bool
	placed  int
	refused time.Time // when a filter first refused its pod while no slot planned earlier waited for its node; zero: never
	again   time.Time // behind because of a spread: when the pod is tried again even if no other pod was placed
	// planned is the memory in bytes that the node needs for this slot and for all that was planned there before it.
	planned int64
	told    string // the last reason to wait that was reported for it
	news    bool   // told has changed and has not been reported yet
}

// group joins slots that may be used only when all of them can be.
type group struct {
	id    string
	slots []*slot
	since time.Time // when it was planned; zero: before this process began
}

// leaveGroup takes the slot out of its group, and returns the group without it (an empty one if the slot had none).
func (s *slot) leaveGroup() *group {
	g := cmp.Or(s.group, &group{})
	g.slots, s.group = without(g.slots, s), nil
	return g
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		boots:    map[string]*boots.Times{},
		patience: boots.UsualPatience,
		nodes:    map[string]*node{},
		byName:   map[string]*node{},
		pods:     map[types.UID]*pod{},
		classes:  map[capacity.ClassKey]*class{},
		apart:    antiaffinity.New(),
		left:     map[capacity.ClassKey]*capacity.Class{},
		assumed:  map[string]map[types.UID]binding{},
		held:     map[types.UID][]*slot{},
		surges:   map[string]int{},
		buffers:  map[types.UID]*buffer{},
		bookings: map[types.UID]*booked.Booking{},
	}
}

// Take returns the effects of all events since the last call.
func (l *Ledger) Take() Effects {
	out := l.out
	l.out = Effects{}
	return out
}

// Empty reports whether the ledger has no nodes and no pods. Then no query objects to any pod on any node.
func (l *Ledger) Empty() bool { return len(l.nodes) == 0 && len(l.pods) == 0 }

// NoNodes reports whether the ledger has no nodes: then it never objects to pods that it doesn't know.
func (l *Ledger) NoNodes() bool { return len(l.nodes) == 0 }

func (l *Ledger) class(c *capacity.Class) *class {
	k, ok := l.classes[c.Key]
	if !ok {
		k = &class{Class: c, queued: map[*pod]bool{}, refusedPods: map[*pod]bool{}}
		l.classes[c.Key] = k
		l.everyClass.Add(k)
		l.apart.Add(c)
	}
	return k
}

// forget drops a class that nothing refers to any more.
func (l *Ledger) forget(c *class) {
	if len(c.slots) > 0 || len(c.waiting) > 0 || c.failed > 0 || c.lost > 0 || c.pods > 0 {
		return
	}
	c.gone = true
	delete(l.classes, c.Key)
	l.apart.Remove(c.Key)
}

// insert adds a slot of the class.
func (c *class) insert(s *slot) {
	c.slots = inserted(c.slots, s)
	s.set(s.ready)
}

// remove removes a slot of the class.
func (c *class) remove(s *slot) {
	c.slots, c.free, s.free = without(c.slots, s), without(c.free, s), false
}

// set makes the slot ready or not, and keeps class.free up to date. Call it also after a change of the slot's pod or owner.
func (s *slot) set(ready bool) {
	s.ready = ready
	free := ready && s.pod == nil && s.owner == ""
	switch c := s.class; {
	case free && !s.free:
		c.free = inserted(c.free, s)
	case !free && s.free:
		c.free = without(c.free, s)
	}
	s.free = free
}

func byOrder(a, b *slot) int { return cmp.Compare(a.order, b.order) }

// inserted and without add a slot to slots in plan order, and remove it.
func inserted(slots []*slot, s *slot) []*slot { return pieces.Insert(slots, s, byOrder) }
func without(slots []*slot, s *slot) []*slot  { return pieces.Remove(slots, s, byOrder) }

// Pending reports whether Take would return any effects.
func (l *Ledger) Pending() bool { return !l.out.Empty() }
