package ledger

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// hold tells until when a slot is reserved for an owner, and which node's pods the owner will replace there. early: its drain has not begun.
type hold struct {
	leaving string
	until   time.Time
	early   bool
}

// Successor identifies a pod that will be created to replace another one.
type Successor struct {
	Owner types.UID
	Class capacity.ClassKey
}

// Move reserves capacity for the pods that will replace those of nodes about to be drained. All placements have an Owner; leaving[i] is
// the node that placement i empties. The reservations last until the given time unless Extend or Release changes that, and go to the
// owner's next pods, first come, first served.
func (l *Ledger) Move(plan string, placements []capacity.Placement, leaving []string, until, now time.Time) {
	holds := make([]hold, len(placements))
	for i := range placements {
		holds[i] = hold{leaving: leaving[i], until: until}
	}
	l.commit(plan, placements, holds, now)
}

// Reserve is Move for nodes that need not be drained. Until Begin no pod gets the reservations, so that other pods of the owners don't use
// them up, and they can be released for pods that wait. The nodes to be drained have to be fenced. Reserve reports whether all of it is
// reserved; otherwise nothing is.
func (l *Ledger) Reserve(plan string, placements []capacity.Placement, leaving []string, until, now time.Time) bool {
	holds := make([]hold, len(placements))
	wanted := map[string]int{}
	for i := range placements {
		holds[i] = hold{leaving[i], until, true}
		wanted[leaving[i]]++
	}
	l.commit(plan, placements, holds, now)
	all := true
	for node, n := range wanted {
		all = all && len(l.heldFor(node)) == n
	}
	if all {
		return true
	}
	for _, node := range slices.Sorted(maps.Keys(wanted)) {
		l.Release(node)
	}
	return false
}

// Begin records that the node is about to be drained: what Reserve has reserved is for the owners' next pods from now on.
func (l *Ledger) Begin(leaving string) {
	for _, s := range l.heldFor(leaving) {
		s.early = false
	}
}

// Held returns how many slots are reserved for replacements of the node's pods, and how many of these slots are ready on initialized nodes.
func (l *Ledger) Held(leaving string) (held map[Successor]int, up int) {
	held = map[Successor]int{}
	for _, s := range l.heldFor(leaving) {
		held[Successor{s.owner, s.class.Key}]++
		if s.node.up() && s.ready {
			up++
		}
	}
	return held, up
}

// Extend keeps the reservations for replacements of the node's pods until the given time.
func (l *Ledger) Extend(leaving string, until time.Time) {
	for _, s := range l.heldFor(leaving) {
		s.until = until
	}
}

// Release drops what is left of the reservations for replacements of the node's pods.
func (l *Ledger) Release(leaving string) {
	for _, s := range l.heldFor(leaving) {
		l.drop(s)
	}
}

func (l *Ledger) heldFor(leaving string) (out []*slot) {
	for _, slots := range l.held {
		for _, s := range slots {
			if s.leaving == leaving {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, byOrder)
	return out
}

// up reports whether pods that are bound to the node can start at once.
func (n *node) up() bool { return n.cached && (!n.status.Managed || n.status.Initialized) }
