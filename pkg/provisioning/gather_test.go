package provisioning

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// However many pods have stale classes: all of them get their present ones, and then nothing is left to do.
func TestAllStaleClassesAreRenewed(t *testing.T) {
	for _, n := range []int{0, 1, renewAtOnce, renewAtOnce + 1, 2*renewAtOnce + 1} {
		w := newWorld()
		g := &Gatherer{pending: w.pending, reservations: w.reservations}
		old := &capacity.Class{Key: "old"}
		for i := range n {
			pod := unscheduled(i)
			w.pending.Handler().OnAdd(pod, false)
			w.reservations.Submit(capacity.RefOf(pod), old)
		}
		w.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Outdate() })
		if changed := g.renew(t.Context(), g.queued()); changed != (n > 0) {
			t.Errorf("%d pods: changed is %v", n, changed)
		}
		waiting := g.queued()
		if len(waiting) != n {
			t.Errorf("%d of %d pods wait", len(waiting), n)
		}
		for _, one := range waiting {
			if one.Stale || one.Class.Key == old.Key {
				t.Fatalf("%d pods: %s is stale: %v, its class is %q", n, one.Ref.Name, one.Stale, one.Class.Key)
			}
		}
		if g.renew(t.Context(), waiting) {
			t.Errorf("%d pods: their classes are renewed again", n)
		}
	}
}
