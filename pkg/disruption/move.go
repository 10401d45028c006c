package disruption

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
)

// moveTimeout is how long a move may take from its reservation until it begins to drain. A move for drifted nodes has canaryMost until its new
// nodes are initialized, and moveTimeout from then on: a node that doesn't come up fails within canaryMost, and the spending guard would not
// learn of that if the move was given up earlier.
const moveTimeout = 10 * time.Minute

// move empties nodes for which capacity is reserved elsewhere:
//
//	reserved -> surging:  all capacity is on initialized nodes, nothing forbids the move, its nodes are tainted, and Deployments were restarted to
//	                      replace some of its pods. That may take moveTimeout; the rest of the move goes on as from reserved
//	reserved -> draining: all capacity is on initialized nodes, nothing forbids the move, its nodes are tainted, and the API server shows no
//	                      pod without capacity. Then its claims are deleted, one after the other as the brake allows
//	reserved -> given up: it can't be made any more, or has waited for too long. Taints and cordons are removed
//	draining -> done:     all claims are gone
type move struct {
	consolidation.Due
	sources []*source
	since   time.Time // when it was reserved
	pays    time.Time // when it will have saved what it costs; until then the nodes that took its pods are not emptied to save money
	begun   bool      // the planner doesn't give it up any more
	up      time.Time // when its new nodes were found to be there
	surging surging
	// templates identify what nodes were launched from when the move was planned, by pool.
	templates map[string]string
}

// forced reports whether the move is made for another reason than to save money (moveReason).
func (mv *move) forced() bool { return mv.Reason != consolidation.Underutilized }

// drifted reports whether the move is made because its nodes have drifted.
func (mv *move) drifted() bool { return mv.Reason == consolidation.Drifted }

// late reports whether the move has waited for too long for what is missing.
func (mv *move) late(missing error, now time.Time) bool {
	since, most := mv.since, moveTimeout
	if mv.surging.begun() {
		since = mv.surging.since
	} else if mv.drifted() {
		if errors.Is(missing, errLaunching) {
			most = canaryMost
		} else {
			if mv.up.IsZero() {
				mv.up = now
			}
			since = mv.up
		}
	}
	return now.Sub(since) > most
}

// source is a node of a move, as of the last pass.
type source struct {
	*candidate
	pods    int // how many pods have to move, as of the beginning of the move
	tainted bool
	tried   bool // a deletion of its claim was tried
	gone    bool // its claim doesn't exist any more
	kept    bool // it is not emptied although the move has begun: capacity for its pods was lost, or its pool was paused
}

// draining reports whether the deletion of a claim was tried. From then on the move is not given up, since the deletion may have worked.
func (mv *move) draining() bool {
	return slices.ContainsFunc(mv.sources, func(src *source) bool { return src.tried })
}

// dueText says why a move empties a node; nil: it is to save money.
func dueText(r moveReason, due *consolidation.Due, m *candidate) string {
	if r != nil {
		return r.text(m)
	}
	text := fmt.Sprintf("its pods fit on nodes that cost $%.4f/h less", due.Saves)
	if len(due.Nodes) > 1 {
		text = fmt.Sprintf("its pods and those of %d other nodes fit on nodes that cost $%.4f/h less", len(due.Nodes)-1, due.Saves)
	}
	return text
}
