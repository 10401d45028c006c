package launch

import (
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
)

// coming says whether more pods are likely to come.
type coming bool

func (*coming) Settled(quiet, window time.Duration) bool { return quiet >= window }
func (c *coming) More() bool                             { return bool(*c) }

// While more pods come, nothing is launched for a pod that would leave most of its node unused, and the pod stays in the queue. It gets its node
// when no more come, without having been refused.
func TestTheTailOfABurstWaits(t *testing.T) {
	w := newWorld(t)
	w.clock = testingclock.NewFakeClock(time.Now())
	more := coming(true)
	w.arrivals = &more
	w.build()
	w.planner = planner.New()
	queued := func() (n int) {
		w.reservations.Read(func(l ledger.Reader) { n = l.Queued() })
		return n
	}
	w.submit(1)
	_, plan, err := w.parts.Rounds.Propose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Nodes) != 1 || plan.Nodes[0].Filled <= 0 || plan.Nodes[0].Filled > 0.9 {
		t.Fatalf("the plan is %+v, want a node that isn't full", plan.Nodes)
	}
	w.parts.Rounds.Round(t.Context())
	if queued() != 1 || len(w.claims) > 0 || len(w.notes) > 0 {
		t.Fatalf("%d pods are queued, %d claims, notes %q: want the pod in the queue, and nothing else", queued(), len(w.claims), w.notes)
	}
	more = false
	w.parts.Rounds.Round(t.Context())
	refused := false
	w.reservations.Read(func(l ledger.Reader) { refused = l.Refused(w.pod(0).UID) })
	if queued() != 0 || refused || len(w.notes) != 1 || !strings.Contains(w.notes[0], "Nominated Planned on new node") {
		t.Errorf("%d pods are queued, refused: %t, notes %q; want a plan for the pod when no more pods come", queued(), refused, w.notes)
	}
}
