package launch

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
)

// bought describes a node in a line: its pool, every offering that is left open, and the number of its pods. Which pods of a class these
// are is decided only when they take their reservations.
func bought(pool string, offers []capacity.OfferKey, pods int) string {
	return fmt.Sprintf("%s %v: %d pods", pool, offers, pods)
}

// What is proposed is what is bought: a Launcher that runs on the same world writes claims for exactly that.
func TestARoundBuysWhatWasProposed(t *testing.T) {
	const pods = 9 // all exist before the Launcher runs, in the order of their UIDs: one burst
	w := newWorld(t)
	w.build()
	w.planner = planner.New()
	w.submit(pods)
	_, plan, err := w.parts.Rounds.Propose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]int{}
	for _, pl := range plan.Placements {
		on[pl.Node]++
	}
	var want []string
	for _, n := range plan.Nodes {
		var offers []capacity.OfferKey
		for _, o := range n.Offers {
			offers = append(offers, o.Key())
		}
		want = append(want, bought(n.Pool.Name, offers, on[n.ID]))
	}
	if len(plan.Placements) != pods || len(w.claims) > 0 || len(w.notes) > 0 {
		t.Fatalf("%d pods placed, %d claims, notes %q: want a plan for all and nothing done about it", len(plan.Placements), len(w.claims), w.notes)
	}

	w.build()
	w.planner = planner.New()
	w.submit(pods)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		w.launcher.Run(ctx)
		close(done)
	}()
	w.allBound(pods)
	cancel()
	<-done
	var got []string
	for _, c := range w.claims {
		got = append(got, bought(c.Pool, c.LaunchBatch.Offers, len(c.Slots)))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-proposed +bought):\n%s", diff)
	}
}
