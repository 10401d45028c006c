package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A plugin that runs before Binder ends each cycle of a pod whose slot is ready. That must not keep the scheduler busy.
func TestCyclesThatEndBeforeBinderBackOff(t *testing.T) {
	start, class := time.Unix(1_000_000, 0), testClass("a", 100, 0)
	l := opened(t, class, start)
	ref := capacity.PodRef{UID: "p"}
	cycles := 0
	for s := range 300 {
		now := start.Add(time.Duration(s) * time.Second)
		l.Tick(now)
		// Each activation is a cycle at once, and no other event starts one. The first activation comes from the opening of the gate.
		for n := 0; s == 0 && cycles == 0 || len(l.Take().Activate) > 0; n++ {
			if n == 10 {
				t.Fatalf("the scheduler is kept busy after %d cycles", cycles)
			}
			cycles++
			st, why := l.Submit(ref, class, now)
			if st != Open {
				t.Fatalf("the pod is %v", st)
			}
			if cycles > 2 && !strings.Contains(why, "another plugin ends its scheduling cycles") {
				t.Errorf("after %d cycles the pod is told %q", cycles, why)
			}
		}
	}
	if cycles < 5 || cycles > 12 {
		t.Errorf("%d cycles in five minutes", cycles)
	}
	// A cycle that asks for the slot ends the back-off: the next time it starts from the beginning.
	if node, why := l.Pin("p"); node != "node" {
		t.Fatal(node, why)
	}
	if p := l.pods["p"]; p.early != 0 || !p.wake.IsZero() {
		t.Errorf("%d cycles are still counted, the next one at %v", p.early, p.wake)
	}
}
