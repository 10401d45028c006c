package launch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// written returns how many claims have been written since the last call.
func (w *world) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.calls["Create"]
	w.calls["Create"] = 0
	return n
}

// There is no capacity, for a long time. Not all claims are launched each time that the cloud has forgotten it.
func TestOneClaimAsksForWhatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.memory = 3 * time.Minute
		w.capacity["large"], w.capacity["small"] = 0, 0
		w.run()
		defer w.stop()
		w.submit(40)
		pass(time.Minute)
		if n := w.written(); n != 10+40 {
			t.Errorf("%d claims were written at first, want 10 of the large type and 40 of the small one", n)
		}
		pass(12 * time.Minute)
		if n := w.written(); n < 6 || n > 10 {
			t.Errorf("%d claims were written in the next twelve minutes, want one for each type every three", n)
		}
		w.mu.Lock()
		left, reserved := len(w.claims), len(w.reserved)
		delete(w.capacity, "large")
		w.mu.Unlock()
		if left+reserved > 0 {
			t.Errorf("%d claims are left, and %d are counted against their pools' limits", left, reserved)
		}
		pass(4 * time.Minute)
		if tokens, instances, bound := w.count(); instances != 10 || bound != 40 {
			t.Errorf("%d instances under %d tokens, %d pods bound, some minutes after there was capacity", instances, tokens, bound)
		}
		// From now on there is capacity.
		w.written()
		w.submitPod(40, 41, 42, 43, 44, 45, 46, 47)
		pass(2 * time.Second)
		if n := w.written(); n != 2 {
			t.Errorf("%d claims were written at once, want both", n)
		}
	})
}

// Pods that fit other offerings wait only for one call.
func TestWhatOtherOffersHoldIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.memory = 3 * time.Minute
		w.capacity["large"] = 0
		w.run()
		defer w.stop()
		w.submit(8)
		pass(4 * time.Minute) // large is reported as available again
		if _, instances, bound := w.count(); instances != 8 || bound != 8 {
			t.Fatalf("%d instances, %d pods bound; want 8 small ones", instances, bound)
		}
		w.written()
		w.submitPod(8, 9, 10, 11, 12, 13, 14, 15)
		pass(2 * time.Second)
		if _, instances, bound := w.count(); instances != 16 || bound != 16 {
			t.Errorf("%d instances, %d pods bound; want 16 small ones", instances, bound)
		}
		if n := w.written(); n != 1+8 {
			t.Errorf("%d claims were written, want one of the large type and eight of the small one", n)
		}
	})
}

// The pods of the first claim are gone: the next claim is launched first.
func TestOneClaimThatIsNeededGoesFirst(t *testing.T) {
	w := newWorld(t)
	w.build()
	m := w.parts
	pool := m.claims.Pools(m.batches.cloud.InstanceTypes)[0]
	n := cheapest(pool, "new")
	one := &batch{pool: pool, capacityType: n.CapacityType, offers: n.Offers, labels: n.Labels, requester: ledgerRequester{w.reservations}}
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		for i, name := range []string{"gone", "first", "other"} {
			one.claims = append(one.claims, &capacity.Claim{Name: name, Pool: pool.Name})
			l.AddNode(name, template(n), nil, false, now)
			if i > 0 {
				class := &capacity.Class{Key: "c"}
				ref := capacity.PodRef{UID: w.pod(i).UID}
				l.Submit(ref, class, now)
				l.Commit(name, []capacity.Placement{{Class: class, Pod: ref, Node: name}}, now)
			}
		}
	})
	m.batches.scarce.Learn(nil, []capacity.OfferKey{n.Offers[0].Key()}, m.calls.clock.Now())
	others := m.batches.one(t.Context(), one)
	m.calls.wg.Wait()
	if !others || len(one.claims) != 1 || one.claims[0].Name != "other" {
		t.Errorf("asked for others: %t, for %v", others, namesOf(one.claims))
	}
	if w.claims["first"] == nil || len(w.claims) != 1 {
		t.Errorf("written: %v", w.claims)
	}
	if m.batches.scarce.All(n.Offers, m.calls.clock.Now()) {
		t.Error("what came is still taken for scarce")
	}
}
