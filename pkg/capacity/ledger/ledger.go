package ledger

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Ledger is the state. Not safe for concurrent use.
type Ledger struct {
	nodes   map[string]*node // by key: the claim's name, or the Node's for nodes that have no claim
	byName  map[string]*node // by Node name, once known
	pods    map[types.UID]*pod
	classes map[capacity.ClassKey]*class
	// assumed are pods of every profile between Reserve and the end of their binding, by Node name.
	assumed  map[string]map[types.UID]Room
	held     map[types.UID]int     // slots that are held for pods to come, by their owner
	boots    map[string]*bootTimes // by capacity.Node.Boot
	patience Patience
	freed    bool // promised room was given back since the last tick
	rejected []Rejected
	out      Effects
	seq      int // of the slots
	arrivals int // of pods and nodes
}

// Effects are what the owner has to do after one or more events.
type Effects struct {
	// Activate are pods whose gate opened, in the order in which they were let go. Of those that the scheduling queue gets together it takes
	// the next one by its own QueueSort.
	Activate []capacity.PodRef
	// Cancel are claims that nobody needs any more and that were not launched yet.
	Cancel []string
	// End are claims that were launched for a plan that has fallen through, and that nothing else was planned on since.
	End []string
	// Plan says that there are queued pods.
	Plan bool
	// Words are for the pods' events: promises that were not kept and are not tried again at once.
	Words []Word
	// Waits are, too: what pods wait for on nodes that are there.
	Waits []Word
	// Tainted are fresh nodes that have got a taint which keeps off pods they were bought for, and which nobody may have declared.
	Tainted []Tainted
}

// Tainted is a claim's node and the taint.
type Tainted struct {
	Claim string
	Taint corev1.Taint
}

// Word is something to be said of a pod.
type Word struct {
	Ref  capacity.PodRef
	Note string
}

// Empty says that there is nothing to do.
func (e Effects) Empty() bool {
	return len(e.Activate) == 0 && len(e.Cancel) == 0 && len(e.End) == 0 && !e.Plan && len(e.Words) == 0 && len(e.Waits) == 0 && len(e.Tainted) == 0
}

// State of a pod.
type State int

// States as drawn in the package comment.
const (
	Unknown State = iota
	Queued
	Planned
	Open
	Assumed
	Refused
)

type pod struct {
	ref   capacity.PodRef
	class *class
	owner types.UID // its own: the class is that of the first pod like it, which may have another
	// arrival is its place in the order in which pods came.
	arrival     int
	state       State
	slot        *slot // pinned; nil while Planned and until the first cycle
	since       time.Time
	why         string    // what it waits for, or why it was refused
	retry       time.Time // Refused: when to plan again; zero: when something changes
	failed      int       // launches or placements in a row that did not get it bound
	turned      bool      // Assumed: it was Refused before
	adoptedFrom types.UID // the owner for whose next pod its room was held
	broken      bool      // Refused: because a promise was not kept
	soon        bool      // Refused: for so short a time that nobody is evicted for it
	behind      bool      // Refused: it leaves domains to its siblings for a while (see siblings)
	until       time.Time // Open: when its room is given up; zero: the next tick says (see overdue)
	// early is how many cycles in a row have ended before they asked for its slot, wake when it gets the next one (see awaken).
	early int
	wake  time.Time
	// stale: queued without word from the pod itself, so that its class is as old as its last cycle.
	stale bool
	// Of a pod that is queued again: told is why it was refused before, heard that a cycle of its own has found nothing since, and
	// held that the scheduler has been told to leave it waiting since it was queued. Queries set it.
	told  string
	heard bool
	held  atomic.Bool
}

type class struct {
	*capacity.Class
	pods    int       // of Ledger.pods, in whatever state
	slots   []*slot   // not assumed, in plan order
	waiting []*pod    // Planned, in the order of their plans
	open    int       // pods that are Open and have no slot yet
	failed  int       // rounds in a row that did not get a pod of it bound
	next    time.Time // failures before this moment belong to the same round
	refused int       // plans in a row that had no room for it
	patient time.Time // refusals before this moment belong to the same plan
	lost    int       // rounds in a row of nodes that took pods of it and whose kubelets never came
	lostWhy string    // what became of the last one
	rest    time.Time // nothing is planned for new pods of it before this moment, once that happened again
}

type slot struct {
	class *class
	node  *node
	order int
	group *group
	pod   *pod      // who it is pinned to
	owner types.UID // held for a pod of this owner that has not come yet
	until time.Time // end of the owner's hold
	// leaving is the node whose pods' successors the slot is held for; empty: for pods that are about to come anyway.
	leaving string
	ready   bool
	told    string // what a pod was last told it waits for here
	news    bool   // and nobody has heard of it yet
}

// group joins slots none of which may be used before all can.
type group struct {
	id    string
	slots []*slot
	since time.Time // when it was planned; zero: before a restart
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		boots:    map[string]*bootTimes{},
		patience: usualPatience,
		nodes:    map[string]*node{},
		byName:   map[string]*node{},
		pods:     map[types.UID]*pod{},
		classes:  map[capacity.ClassKey]*class{},
		assumed:  map[string]map[types.UID]Room{},
		held:     map[types.UID]int{},
	}
}

// Take returns the effects of all events since the last call.
func (l *Ledger) Take() Effects {
	out := l.out
	l.out = Effects{}
	return out
}

// Empty says that nothing is promised to anybody and no node needs watching: every query would answer "no objection".
func (l *Ledger) Empty() bool { return len(l.nodes) == 0 && len(l.pods) == 0 }

// NoNodes says that nothing is promised or kept on any node: to pods that the ledger doesn't know it has nothing to say.
func (l *Ledger) NoNodes() bool { return len(l.nodes) == 0 }

func (l *Ledger) class(c *capacity.Class) *class {
	k, ok := l.classes[c.Key]
	if !ok {
		k = &class{Class: c}
		l.classes[c.Key] = k
	}
	return k
}

// forget drops a class that nothing refers to.
func (l *Ledger) forget(c *class) {
	if len(c.slots) > 0 || len(c.waiting) > 0 || c.failed > 0 || c.lost > 0 || c.pods > 0 {
		return
	}
	delete(l.classes, c.Key)
}

// insert keeps slots in plan order.
func (c *class) insert(s *slot) {
	i, _ := slices.BinarySearchFunc(c.slots, s, func(a, b *slot) int { return cmp.Compare(a.order, b.order) })
	c.slots = slices.Insert(c.slots, i, s)
}

// free is the first ready slot nobody has, in plan order.
func (c *class) free() *slot {
	for _, s := range c.slots {
		if s.ready && s.pod == nil && s.owner == "" {
			return s
		}
	}
	return nil
}

func (c *class) freeReady() int {
	n := 0
	for _, s := range c.slots {
		if s.ready && s.pod == nil && s.owner == "" {
			n++
		}
	}
	return n
}

// Pending says that Take would return effects.
func (l *Ledger) Pending() bool { return !l.out.Empty() }
