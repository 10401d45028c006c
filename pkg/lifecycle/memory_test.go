package lifecycle

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// State about pods and instances that no decision needs any more is forgotten: pods end between two tries to evict them, and an instance
// may be looked up after its claim is gone.
func TestWhatNobodyAsksAboutIsForgotten(t *testing.T) {
	w := newWorld(t)
	claim, owned := w.launched("a")
	stray := w.cloud.launch("i-stray", "")
	look := func(providerID string) {
		if _, _, err := w.c.nodes.sightings.look(w.ctx, providerID, w.clock.Now(), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	look(owned.ProviderID)
	look(stray.ProviderID)
	w.c.garbage.evictions.fail("gone", w.clock.Now())
	collect := func() {
		w.sync()
		if _, err := w.c.reconcile(w.ctx, key{}); err != nil {
			t.Fatal(err)
		}
	}
	remembered := func() (instances, pods int) {
		return len(w.c.nodes.sightings.seen.of), len(w.c.garbage.evictions.of)
	}
	collect()
	if instances, pods := remembered(); instances != 2 || pods != 1 {
		t.Fatalf("%d instances and %d pods are remembered at first, want 2 and 1", instances, pods)
	}
	w.clock.Step(sightingMemory + evictionMemory)
	w.c.garbage.evictions.fail("waits", w.clock.Now())
	collect()
	if instances, pods := remembered(); instances != 1 || pods != 1 {
		t.Errorf("%d instances and %d pods are remembered, want those that are asked about", instances, pods)
	}
	if _, ok := w.c.nodes.sightings.seen.get(capacity.InstanceID(claim.Status.ProviderID)); !ok {
		t.Error("the claim's instance is forgotten")
	}
	if w.c.garbage.evictions.wait(types.UID("waits"), w.clock.Now()) == 0 {
		t.Error("a pod's back-off is forgotten before it is over")
	}
}
