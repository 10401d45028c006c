package launch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// wants makes the pool static, or changes its replicas.
func (w *world) wants(n int64) {
	w.mu.Lock()
	w.replicas = &n
	w.mu.Unlock()
	if w.launcher != nil {
		w.parts.Triggers.Changed()
	}
}

// never fails the test if the condition ever holds while calls are made.
func (w *world) never(what string, when func() bool, calls ...string) {
	for _, name := range calls {
		w.during[name] = func() {
			if when() {
				w.t.Errorf("%s while %s is called", what, name)
			}
		}
	}
}

func TestStaticPoolKeepsItsNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.never("more than 5 claims", func() bool { return len(w.claims) > 5 }, "Create", "Launch", "Describe")
	w.wants(3)
	w.run()
	w.exactly(3)
	w.wants(5)
	w.exactly(5)
	w.stop()
	for _, c := range w.claims {
		if c.LaunchBatch.For != capacity.ForPool || c.LaunchBatch.Token == "" {
			t.Errorf("recorded as %+v", c.LaunchBatch)
		}
	}
	if len(w.tokens) != 2 {
		t.Errorf("%d launch batches, want one for three and one for two", len(w.tokens))
	}
}

func TestStaticPoolShrinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wants(4)
	w.run()
	w.exactly(4)
	// Two of the nodes have a pod, one of those a second one.
	w.mu.Lock()
	names := slices.Sorted(maps.Keys(w.nodes))
	w.podsOn = map[string][]*corev1.Pod{names[0]: {{}, {}}, names[2]: {{}}}
	w.nodes[names[1]].Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
	w.mu.Unlock()
	for i, want := range [][]string{{names[0], names[1], names[2]}, {names[0], names[1]}, {names[1]}, nil} {
		w.wants(int64(3 - i))
		w.until(fmt.Sprint("down to ", 3-i), func() bool { return len(w.claims) == 3-i })
		w.mu.Lock()
		var left []string
		for _, c := range w.claims {
			left = append(left, c.NodeName)
		}
		w.mu.Unlock()
		slices.Sort(left)
		if !slices.Equal(left, want) {
			t.Errorf("%v stay, want %v", left, want)
		}
	}
}

func TestStaticPoolKeepsToItsLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.limits = capacity.Resources{capacity.ResourceNodes: 2}
	w.wants(3)
	w.run()
	w.until("it is told", w.noted("pool TooFewNodes pool: over the pool's limit: nodes"))
	w.exactly(2)
}

func TestStaticPoolWithoutAnInstanceIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.capacity["small"], w.capacity["large"] = 0, 0
	w.wants(2)
	w.run()
	w.until("it is told", w.noted("pool TooFewNodes none of 2 instance types is available"))
	w.mu.Lock()
	clear(w.capacity)
	w.mu.Unlock()
	w.exactly(2)
}

// Whatever fails, there are never more claims than the pool wants, and the back-off grows.
func TestStaticPoolWhoseLaunchesFailBacksOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broken["Launch"] = fmt.Errorf("%w: not authorized", capacity.ErrRefused)
	w.never("more than 3 claims", func() bool { return len(w.claims) > 3 }, "Create", "Launch")
	w.wants(3)
	w.run()
	w.until("two tries", func() bool { return w.calls["Launch"] > 1 })
	w.until("it is told", w.noted("pool TooFewNodes refused by the cloud: not authorized"))
	w.until("the claims have ended", func() bool { return len(w.claims) == 0 })
	if s := w.parts.statics.Backoff("pool"); s.Failed < 2 || s.Until.IsZero() {
		t.Errorf("%d failures counted, next try at %v", s.Failed, s.Until)
	}
	w.mu.Lock()
	delete(w.broken, "Launch")
	w.mu.Unlock()
	w.exactly(3)
}

// A node that never registers is a failure, one that a scale-down removes is none.
func TestStaticNodeThatNeverRegistered(t *testing.T) {
	for name, want := range map[string]int{"lost": 1, "registered": 0, "ending": 0, "of pods": 0} {
		w := newWorld(t)
		w.build()
		c := &capacity.Claim{Name: name, Pool: "pool", Registered: name == "registered", Deleting: true, LaunchBatch: &capacity.LaunchBatch{For: capacity.ForPool}}
		if name == "of pods" {
			c.LaunchBatch.For = capacity.ForPods
		}
		w.claims[name] = c
		if name == "ending" {
			w.parts.statics.End(name)
		}
		w.parts.Claims.ClaimGone(name, "its NodeClaim was deleted")
		if got := w.parts.statics.Backoff("pool").Failed; got != want {
			t.Errorf("a claim that is %s: %d failures, want %d", name, got, want)
		}
	}
}

func TestStaticNodeThatIsDeletedIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wants(2)
	w.run()
	w.exactly(2)
	w.mu.Lock()
	name := slices.Sorted(maps.Keys(w.claims))[0]
	inst := w.claims[name].Instance().ID
	w.claims[name].Deleting = true
	w.mu.Unlock()
	w.parts.Claims.ClaimGone(name, "its NodeClaim was deleted")
	w.until("another one beside it", func() bool { return len(w.claims) == 3 && len(w.instances) == 3 })
	w.mu.Lock()
	delete(w.claims, name)
	delete(w.instances, inst)
	w.mu.Unlock()
	w.parts.Claims.ClaimGone(name, "its NodeClaim was deleted")
	w.exactly(2)
}

func TestRestartKeepsAStaticPoolAtItsNumber(t *testing.T) {
	for _, tt := range []struct {
		name string
		die  func(w *world) (reached func() bool)
	}{
		{"while claims are written", func(w *world) func() bool {
			w.lost["Create"] = 2
			return func() bool { return len(w.claims) > 0 }
		}},
		{"before the call", func(w *world) func() bool {
			w.broken["Launch"] = errors.New("timeout")
			return func() bool { return w.calls["Launch"] > 0 }
		}},
		{"after the call, before its record", func(w *world) func() bool {
			w.lost["Launch"] = 1 << 30
			return func() bool { return len(w.instances) == 3 }
		}},
		{"before the nodes", func(w *world) func() bool {
			w.broken["Describe"] = errors.New("timeout")
			return func() bool { return w.calls["RecordLaunched"] == 3 }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			reached := tt.die(w)
			w.wants(3)
			w.run()
			w.until(tt.name, reached)
			w.stop()
			clear(w.broken)
			clear(w.lost)
			w.run()
			w.exactly(3)
			w.stop()
			if w.seq > 3 {
				t.Errorf("%d instances were launched for 3 nodes", w.seq)
			}
		})
	}
}

// The claims that an earlier leader wrote a moment ago are in the API but not in the cache, and neither is the pool's current number of
// replicas. What the API says counts.
func TestStaticPoolWithCachesThatAreBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.unseen = map[string]bool{}
	for i := range 2 {
		name := fmt.Sprint("earlier-", i)
		w.unseen[name] = true
		w.claims[name] = &capacity.Claim{Name: name, UID: name, Pool: "pool", NodeClass: "class", Launched: true, Initialized: true, NodeName: "n" + name, ProviderID: "aws:///a/i-" + name}
		w.instances["i-"+name] = capacity.Instance{ID: "i-" + name, ProviderID: "aws:///a/i-" + name}
		w.nodes["n"+name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n" + name}}
	}
	w.replicas, w.stale = ptr.To[int64](3), ptr.To[int64](10)
	w.run()
	w.exactly(3)
	w.mu.Lock()
	counted := w.calls["Standing"]
	w.mu.Unlock()
	w.until("counted once more", func() bool { return w.calls["Standing"] > counted })
	w.exactly(3)
}

// The API server lists a claim that is forgotten before the answer is there: it doesn't count.
func TestClaimOfAStaticPoolThatEndsWhileItIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.replicas, w.stale = ptr.To[int64](1), ptr.To[int64](2)
	for _, name := range []string{"a", "b"} {
		w.claims[name] = &capacity.Claim{Name: name, UID: name, Pool: "pool", NodeClass: "class", Launched: true, Initialized: true}
	}
	w.build()
	w.parts.statics.End("b")
	w.during["Standing"] = func() { w.parts.statics.Forget("b") }
	w.parts.staticPools.Keep(t.Context())
	w.settled()
	for _, name := range []string{"a", "b"} {
		if c := w.claims[name]; c == nil || c.Deleting || w.parts.statics.Ending(name) {
			t.Errorf("%s is ended, and the pool has no node left", name)
		}
	}
}

func TestStaticPoolThatCannotBeCountedIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broken["Standing"] = errors.New("timeout")
	w.wants(2)
	w.run()
	w.until("it is tried", func() bool { return w.calls["Standing"] > 1 })
	w.mu.Lock()
	if len(w.claims) > 0 {
		t.Error("launched without knowing what is there")
	}
	delete(w.broken, "Standing")
	w.mu.Unlock()
	w.exactly(2)
}

// A pool that is being deleted: its cache entry is still there.
func TestStaticPoolThatIsGoingGetsNoNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stale = ptr.To[int64](2)
	w.run()
	w.until("it is counted", func() bool { return w.calls["Standing"] > 1 })
	w.stop()
	if len(w.claims) > 0 || strings.Contains(strings.Join(w.notes, " "), "TooFewNodes") {
		t.Errorf("%d claims, %q", len(w.claims), w.notes)
	}
}

// A static pool gets a spare beside its nodes, and keeps it as long as it is wanted.
func TestStaticPoolWithASpare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.never("more than 4 claims", func() bool { return len(w.claims) > 4 }, "Create", "Launch", "Describe")
	w.wants(3)
	w.run()
	w.exactly(3)
	w.spare.Store(true)
	w.parts.Triggers.Recount()
	w.exactly(4)
	w.spare.Store(false)
	w.parts.Triggers.Recount()
	w.until("the spare is gone", func() bool { return len(w.claims) == 3 })
	w.stop()
}
