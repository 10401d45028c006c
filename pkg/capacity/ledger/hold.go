package ledger

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// hold is for how long a slot is kept, and for the successors of whose pods.
type hold struct {
	leaving string
	until   time.Time
}

// Successor is what a pod that is going to come instead of another is known by.
type Successor struct {
	Owner types.UID
	Class capacity.ClassKey
}

// Move books room for the successors of pods whose nodes are about to go: all placements have an Owner, leaving[i] is the node
// that placement i empties. The room is kept until Extend or Release says otherwise, at first until the given time, and goes to
// whoever of the owner comes first.
func (l *Ledger) Move(plan string, placements []capacity.Placement, leaving []string, until, now time.Time) {
	holds := make([]hold, len(placements))
	for i := range placements {
		holds[i] = hold{leaving[i], until}
	}
	l.commit(plan, placements, holds, now)
}

// Held is how many slots are kept for successors of the node's pods, and how many of them are on nodes that are up.
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

// Extend keeps the room for the successors of the node's pods until then.
func (l *Ledger) Extend(leaving string, until time.Time) {
	for _, s := range l.heldFor(leaving) {
		s.until = until
	}
}

// Release gives up what is left of the room for the successors of the node's pods.
func (l *Ledger) Release(leaving string) {
	for _, s := range l.heldFor(leaving) {
		l.drop(s)
	}
}

func (l *Ledger) heldFor(leaving string) []*slot {
	var out []*slot
	for _, n := range l.nodes {
		for _, s := range n.slots {
			if s.leaving == leaving && s.owner != "" {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b *slot) int { return a.order - b.order })
	return out
}

// up says that pods bound to the node start at once.
func (n *node) up() bool { return n.cached && (!n.status.Managed || n.status.Initialized) }
