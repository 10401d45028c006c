package launch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
		call string // breaks while the last leader leads; empty: it creates the Node, which isn't initialized
		deaf bool   // the API server doesn't answer at first
	}{
		{name: "the call is recorded", call: "Launch"},
		{name: "the instance is recorded", call: "Describe"},
		{name: "the API server answers later", call: "Describe", deaf: true},
		{name: "the Node exists and isn't initialized"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.broken[tt.call] = errors.New("timeout")
			w.run()
			w.submit(1)
			if tt.call == "" {
				w.exactly(1)
			} else {
				w.until("the call", func() bool { return w.calls[tt.call] > 0 })
			}
			w.stop()
			clear(w.broken)
			clear(w.bound)
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

// mend ends the failures of calls.
func (w *world) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.broken)
}

// The API server has no answer about claims of the last leader for longer than plans wait. Then they are not forgotten: one that was not
// launched is deleted, and one that was is taken over by the planner, with the capacity that DaemonSets need there.
func TestClaimsWithoutAnswerAreAskedAboutLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.claims["a"] = &capacity.Claim{Name: "a", UID: "a", Pool: "pool"}
		w.claims["b"] = &capacity.Claim{Name: "b", UID: "b", Pool: "pool"}
		w.stored = map[string]*capacity.Claim{"a": {Name: "a", UID: "a", Pool: "pool", Launched: true, ProviderID: "aws:///z/i-a"}}
		w.broken["Drop"] = errors.New("timeout")
		w.run()
		defer w.stop()
		pass(time.Minute)
		w.submit(1)
		pass(time.Second)
		if _, instances, _ := w.count(); instances != 1 {
			t.Errorf("%d instances: plans wait for the API server's answer", instances)
		}
		w.mend()
		pass(maxRetry + time.Second)
		if w.Claim("b") != nil {
			t.Error("the claim that was not launched is still there")
		}
		w.reservations.Read(func(l ledger.Reader) {
			if !l.Has("a") {
				t.Error("the ledger doesn't have the node in flight")
			}
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.calls["Describe"] == 0 {
			t.Error("its instance is not looked at")
		}
		if n := len(w.parts.recovery.unanswered.Names()); n > 0 {
			t.Errorf("%d claims are still asked about", n)
		}
	})
}

// The last leader has launched two claims with one call, and its record is seen of one of them only, later or at once. Nothing is done with
// the batch before it is known of the other: the call's repetition returns its instance, too.
func TestLaunchBatchWaitsForTheAnswersAboutAllItsClaims(t *testing.T) {
	for name, both := range map[string]bool{"one is answered about at once": false, "both are not": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.lost["Launch"] = 1 << 30
				w.run()
				w.submit(8)
				pass(time.Second)
				w.stop()
				w.mu.Lock()
				names := slices.Sorted(maps.Keys(w.claims))
				clear(w.lost)
				w.broken["Drop "+names[1]] = errors.New("timeout")
				if both {
					w.broken["Drop "+names[0]] = errors.New("timeout")
				}
				w.mu.Unlock()
				w.late()
				w.run()
				defer w.stop()
				pass(time.Minute)
				w.mu.Lock()
				delete(w.broken, "Drop "+names[0])
				w.mu.Unlock()
				pass(time.Minute)
				w.mend()
				pass(time.Minute)
				w.mu.Lock()
				defer w.mu.Unlock()
				for i, id := range []string{"i-0001", "i-0002"} {
					if c := w.claims[names[i]]; c == nil || capacity.InstanceID(c.ProviderID) != id {
						t.Errorf("claim %+v, want one with instance %s", c, id)
					}
				}
				if n := w.calls["Terminate"]; n > 0 {
					t.Errorf("%d instances were terminated", n)
				}
			})
		})
	}
}

// The last leader had recorded one attempt and went on to the next, which the cache doesn't show: of one claim it shows the first attempt, of the
// other none. The record of the second isn't overwritten, or its instances would belong to no claim, and only that one is resumed.
func TestResumedLaunchOverwritesNoLaterAttempt(t *testing.T) {
	w := newWorld(t)
	w.build()
	attempt := func(n int) *capacity.LaunchBatch {
		return &capacity.LaunchBatch{Token: fmt.Sprint("t", n), Attempt: n, Claims: []string{"a", "b"}, Pool: "pool", NodeClass: "class", CapacityType: "on-demand",
			For: capacity.ForPool, Offers: []capacity.OfferKey{{InstanceType: "small", Zone: "a", CapacityType: "on-demand"}}, Request: fmt.Append(nil, "r", n)}
	}
	claim := func(name string, batch *capacity.LaunchBatch) *capacity.Claim {
		return &capacity.Claim{Name: name, UID: name, Pool: "pool", NodeClass: "class", LaunchBatch: batch, Allocatable: capacity.Resources{"cpu": 1000}}
	}
	a, b := claim("a", attempt(1)), claim("b", nil)
	w.claims["a"], w.claims["b"] = claim("a", attempt(1)), claim("b", nil)
	w.stored = map[string]*capacity.Claim{"a": claim("a", attempt(2)), "b": claim("b", attempt(2))}
	if _, err := w.Launch(t.Context(), *attempt(2)); err != nil {
		t.Fatal(err)
	}
	w.parts.resumption.resume(t.Context(), attempt(1), []*capacity.Claim{a, b}, []*capacity.Claim{a, b})
	w.settled()
	for _, name := range []string{"a", "b"} {
		if c := w.claims[name]; c == nil || c.ProviderID == "" || c.LaunchBatch.Attempt != 2 {
			t.Errorf("claim %s is %+v, want it with an instance of the second attempt", name, c)
		}
	}
	if n := len(w.instances); n != 2 || w.requests["t1"] != "" || w.calls["Terminate"] > 0 {
		t.Errorf("%d instances, the first attempt was repeated: %v, %d terminations", n, w.requests["t1"] != "", w.calls["Terminate"])
	}
}

// The last leader had recorded the instances, which the cache doesn't show, and made no Nodes: they are made ahead of their kubelets, once the
// instances are known to be alive, and nothing is launched. A claim that is being deleted gets none.
func TestResumedLaunchFinishesNodesOfInstancesTheCacheDoesNotShow(t *testing.T) {
	w := newWorld(t)
	w.build()
	batch := &capacity.LaunchBatch{Token: "t1", Attempt: 1, Claims: []string{"a", "b", "c"}, Pool: "pool", NodeClass: "class", CapacityType: "on-demand",
		For: capacity.ForPool, Offers: []capacity.OfferKey{{InstanceType: "small", Zone: "a", CapacityType: "on-demand"}}, Request: []byte("r1")}
	launched, err := w.Launch(t.Context(), *batch)
	if err != nil {
		t.Fatal(err)
	}
	var missing []*capacity.Claim
	w.stored = map[string]*capacity.Claim{}
	for i, name := range batch.Claims {
		c := capacity.Claim{Name: name, UID: name, Pool: "pool", NodeClass: "class", Allocatable: capacity.Resources{"cpu": 1000}}
		shown, stored := c, c
		w.claims[name], missing = &shown, append(missing, &c)
		inst := launched.Instances[i]
		stored.LaunchBatch, stored.Launched, stored.ProviderID, stored.Deleting = batch, true, inst.ProviderID, name == "c"
		stored.InstanceType, stored.Zone, stored.CapacityType = inst.InstanceType, inst.Zone, inst.CapacityType
		w.stored[name] = &stored
	}
	calls := w.calls["Launch"]
	w.parts.resumption.resume(t.Context(), batch, missing, missing)
	w.settled()
	for _, name := range batch.Claims {
		c := w.claims[name]
		if made := c != nil && w.nodes[c.NodeName] != nil; made != (name != "c") {
			t.Errorf("claim %s: a Node is made: %v; %+v", name, made, c)
		}
	}
	if w.calls["Launch"] != calls || w.calls["Terminate"] > 0 || len(w.instances) != 3 {
		t.Errorf("%d calls to launch, %d terminations, %d instances", w.calls["Launch"]-calls, w.calls["Terminate"], len(w.instances))
	}
}

// The API server answers about one claim of a batch, whose instance is known, and not about the other, for as long as a launch may take. The first
// one's Node is made once, and it is not given up with the other.
func TestClaimThatIsFinishedIsNotGivenUpWithOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.build()
		batch := &capacity.LaunchBatch{Token: "t1", Attempt: 1, Claims: []string{"a", "b"}, Pool: "pool", NodeClass: "class", CapacityType: "on-demand",
			For: capacity.ForPool, Offers: []capacity.OfferKey{{InstanceType: "small", Zone: "a", CapacityType: "on-demand"}}, Request: []byte("r1")}
		launched, err := w.Launch(t.Context(), *batch)
		if err != nil {
			t.Fatal(err)
		}
		var missing []*capacity.Claim
		for _, name := range batch.Claims {
			c := capacity.Claim{Name: name, UID: name, Pool: "pool", NodeClass: "class", Allocatable: capacity.Resources{"cpu": 1000}}
			shown := c
			w.claims[name], missing = &shown, append(missing, &c)
		}
		stored, inst := *missing[0], launched.Instances[0]
		stored.LaunchBatch, stored.Launched, stored.ProviderID = batch, true, inst.ProviderID
		stored.InstanceType, stored.Zone, stored.CapacityType = inst.InstanceType, inst.Zone, inst.CapacityType
		w.stored = map[string]*capacity.Claim{"a": &stored}
		w.broken["RecordBatch b"] = errors.New("timeout")
		w.parts.resumption.resume(t.Context(), batch, missing, missing)
		w.settled()
		if c := w.claims["a"]; c == nil || w.nodes[c.NodeName] == nil {
			t.Errorf("the claim whose instance is known is %+v", c)
		}
		if n := w.calls["RecordLaunched"]; n != 1 {
			t.Errorf("its instance is recorded %d times, want once", n)
		}
		if w.claims["b"] != nil {
			t.Error("the claim about which nothing is known waits for ever")
		}
	})
}
