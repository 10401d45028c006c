package launch

import (
	"errors"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// late makes the cache show the claims as they were before their launch was recorded; the API server has them as they are.
func (w *world) late() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored = map[string]*capacity.Claim{}
	for name, c := range w.claims {
		before := *c
		before.LaunchBatch, before.Launched, before.ProviderID, before.NodeName = nil, false, "", ""
		w.stored[name], w.claims[name] = c, &before
	}
}

// The last leader recorded a launch, which the cache of the next one doesn't show yet. It is carried on with, and nothing is launched a second
// time for the same pod.
func TestLaunchThatTheCacheDoesNotShowIsResumed(t *testing.T) {
	for _, tt := range []struct {
		name string
		call string // breaks while the last leader leads
		deaf bool   // the API server doesn't answer at first
	}{
		{name: "the call is recorded", call: "Launch"},
		{name: "the instance is recorded", call: "Describe"},
		{name: "the API server answers later", call: "Describe", deaf: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.broken[tt.call] = errors.New("timeout")
			w.run()
			w.submit(1)
			w.until("the call", func() bool { return w.calls[tt.call] > 0 })
			w.stop()
			clear(w.broken)
			w.late()
			if tt.deaf {
				w.broken["Drop"] = errors.New("timeout")
			}
			w.run()
			w.submit(1)
			if tt.deaf {
				w.until("two questions", func() bool {
					if w.calls["Drop"] < 2 {
						return false
					}
					clear(w.broken)
					return true
				})
			}
			w.allBound(1)
			w.exactly(1)
			for name := range w.stored {
				if w.claims[name] == nil {
					t.Errorf("%s, which was launched, has been replaced", name)
				}
			}
			if len(w.tokens) != 1 {
				t.Errorf("%d tokens were used, want the recorded one", len(w.tokens))
			}
		})
	}
}

// Plans must know of the node that is in flight.
func TestKeptClaimIsInTheLedger(t *testing.T) {
	w := newWorld(t)
	w.claims["a"] = &capacity.Claim{Name: "a", UID: "a", Pool: "pool"}
	w.stored = map[string]*capacity.Claim{"a": {Name: "a", UID: "a", Pool: "pool", Launched: true, ProviderID: "aws:///z/i-a"}}
	w.run()
	w.until("its instance is looked at", func() bool { return w.calls["Describe"] > 0 })
	w.reservations.Read(func(l ledger.Reader) {
		if !l.Has("a") {
			t.Error("the ledger doesn't have the node that is in flight")
		}
	})
}
