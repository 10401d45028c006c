package bookings

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// world is what Bookings work with: nothing can be planned.
type world struct {
	provisioning.Ownership
	err error
}

func (*world) Hold() error     { return nil }
func (*world) TakesOver() bool { return false }

func (w *world) View(context.Context) (*provisioning.View, error) { return nil, w.err }
func (w *world) Fit(context.Context, *provisioning.View, []capacity.Demand) (*capacity.Plan, error) {
	return nil, w.err
}
func (w *world) Buy(context.Context, *provisioning.View, []capacity.Demand) (*capacity.Plan, error) {
	return nil, w.err
}

// A new leader looks for what a request had been told of. A look that fails finds nothing out: the request keeps its capacity, since revoking it would
// stop pods that run.
func TestAFailedLookRevokesNothing(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	w, named := &world{err: errors.New("the API server doesn't answer")}, 0
	b := New(Parts{Clock: clk, Reservations: reservations.New(clk), Plans: w, Ownership: w, Problem: func() error { return nil },
		MayLaunch: func(string) error { return nil }, Replan: func() {}, Named: func(string, string) int { return named }})
	r := Request{UID: "u", Namespace: "lab", Name: "train", Until: clk.Now().Add(5 * time.Minute), Sets: []Set{{&capacity.Class{Key: "c"}, 2}}}
	look := func() Phase {
		b.Set([]Request{r})
		b.Keep(t.Context())
		return b.Report()[types.UID("u")].Phase
	}
	for range 2 {
		if phase := look(); phase != Waiting || b.Known() {
			t.Fatalf("after a look that failed: phase %d, known %t", phase, b.Known())
		}
	}
	named = 2
	if phase := look(); phase != Consumed || !b.Known() {
		t.Errorf("its pods have come: phase %d, known %t", phase, b.Known())
	}
}

// The templates of a request that had been told of its capacity are gone: a new leader can't know what it was for. It ends with its time, and not
// because its pods seem to have come.
func TestRequestWithoutTemplatesEndsWithItsTime(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	w := &world{}
	b := New(Parts{Clock: clk, Reservations: reservations.New(clk), Plans: w, Ownership: w, Problem: func() error { return nil },
		MayLaunch: func(string) error { return nil }, Replan: func() {}, Named: func(string, string) int { return 1 }})
	for range 3 {
		b.Set([]Request{{UID: "u", Namespace: "lab", Name: "train", Until: clk.Now().Add(KeptFor)}})
		b.Keep(t.Context())
		if phase := b.Report()["u"].Phase; phase != Ready || !b.Known() {
			t.Errorf("phase %d, known %t", phase, b.Known())
		}
	}
}

// Before a new leader knows the requests, none of them counts as one that has its capacity.
func TestRequestsCountAsUnprovisionedUntilTheyAreKnown(t *testing.T) {
	b := New(Parts{Reservations: reservations.New(clocktesting.NewFakeClock(time.Unix(1e9, 0))), Replan: func() {}})
	if !b.Unprovisioned("lab", "train") {
		t.Error("pods of a request that may be launching are planned for")
	}
	b.Set(nil)
	if b.Unprovisioned("lab", "train") {
		t.Error("pods of a request that doesn't exist wait for it")
	}
}
