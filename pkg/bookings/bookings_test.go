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
