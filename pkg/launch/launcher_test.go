package launch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func (w *world) allBound(n int) {
	w.t.Helper()
	w.until(fmt.Sprint(n, " pods bound"), func() bool { return len(w.bound) == n })
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, node := range w.bound {
		if w.nodes[node] == nil {
			w.t.Errorf("pod %s is bound to %q, which does not exist", uid, node)
		}
	}
}

// exactly fails unless n instances live, each with its claim and node.
func (w *world) exactly(n int) {
	w.t.Helper()
	w.until(fmt.Sprint(n, " instances with claims and nodes"), func() bool {
		if len(w.instances) != n || len(w.claims) != n || len(w.nodes) < n {
			return false
		}
		for _, c := range w.claims {
			if _, ok := w.instances[c.Instance().ID]; !ok || c.NodeName == "" {
				return false
			}
		}
		return true
	})
}

func TestDemandBecomesNodesAndPodsAreBound(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.submit(10)
	w.allBound(10)
	w.exactly(3) // 4 + 4 + 2
	if len(w.tokens) != 1 {
		t.Errorf("%d calls for identical nodes, want one launch batch", len(w.tokens))
	}
}

func TestLostAnswerIsRepeatedUnderTheSameToken(t *testing.T) {
	w := newWorld(t)
	w.lost["Launch"] = 2
	w.run()
	w.submit(8)
	w.allBound(8)
	w.exactly(2)
	if len(w.tokens) != 1 {
		t.Errorf("launched under %d tokens, want one", len(w.tokens))
	}
}

func TestCapacityRunsOutHalfWay(t *testing.T) {
	w := newWorld(t)
	w.capacity["large"] = 1
	w.run()
	w.submit(8) // two large ones: one is launched and holds four pods; the other four pods get small ones
	w.allBound(8)
	w.exactly(5)
}

func TestNothingAvailableIsReportedAndTriedLater(t *testing.T) {
	w := newWorld(t)
	w.capacity["large"], w.capacity["small"] = 0, 0
	w.run()
	w.submit(2)
	w.until("a word about it", func() bool {
		return len(w.notes) >= 2 && strings.Contains(w.notes[len(w.notes)-1], "no offer")
	})
	w.mu.Lock()
	delete(w.capacity, "large")
	w.mu.Unlock()
	w.parts.Triggers.Changed()
	w.allBound(2)
	w.exactly(1)
}

func TestRefusedLaunchGivesThePodsBack(t *testing.T) {
	w := newWorld(t)
	w.broken["Launch"] = fmt.Errorf("%w: not authorized", capacity.ErrRefused)
	w.run()
	w.submit(4)
	w.until("claims gone and pods told", func() bool {
		return len(w.claims) == 0 && strings.Contains(strings.Join(w.notes, "\n"), "not authorized")
	})
	w.mu.Lock()
	delete(w.broken, "Launch")
	w.mu.Unlock()
	w.allBound(4)
	w.exactly(1)
}

func TestClaimThatCannotBeWrittenIsNotLaunched(t *testing.T) {
	w := newWorld(t)
	w.broken["Create"] = errors.New("etcd is full")
	w.run()
	w.submit(1)
	w.until("the pod told", func() bool { return strings.Contains(strings.Join(w.notes, "\n"), "etcd is full") })
	w.mu.Lock()
	if len(w.tokens) > 0 {
		t.Error("launched without a record")
	}
	delete(w.broken, "Create")
	w.mu.Unlock()
	w.allBound(1)
}

// The leader dies while it writes a launch batch on its claims. The next one makes the call for all claims that the record names, after
// writing it on all of them: otherwise termination and garbage collection would not know whose instance it is.
func TestRestartRecordsTheLaunchBatchOnAllOfItsClaimsBeforeTheCall(t *testing.T) {
	w := newWorld(t)
	w.broken["Launch"] = errors.New("timeout")
	w.run()
	w.submit(8)
	w.until("the call", func() bool { return w.calls["Launch"] > 0 })
	w.stop()
	var last *capacity.Claim
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		last = w.claims[name]
	}
	last.LaunchBatch = nil
	bare := 0
	w.during["Launch"] = func() {
		for _, c := range w.claims {
			if c.LaunchBatch == nil || c.LaunchBatch.Token == "" {
				bare++
			}
		}
	}
	clear(w.broken)
	w.run()
	w.submit(8)
	w.allBound(8)
	w.exactly(2)
	if bare > 0 || len(w.tokens) != 1 {
		t.Errorf("%d claims did not bear the launch batch when it was called, launched under %d tokens", bare, len(w.tokens))
	}
}

// The leader dies at some point; the next one finds claims, instances and pods as they are then.
func TestRestartLaunchesNothingTwice(t *testing.T) {
	for _, c := range []struct {
		name string
		die  func(w *world) (reached func() bool)
	}{
		{"before the call", func(w *world) func() bool {
			w.broken["Launch"] = errors.New("timeout")
			return func() bool {
				for _, c := range w.claims {
					if c.LaunchBatch == nil || c.LaunchBatch.Token == "" {
						return false
					}
				}
				return len(w.claims) == 2
			}
		}},
		{"after the call, before its record", func(w *world) func() bool {
			w.lost["Launch"] = 1 << 30
			return func() bool { return len(w.instances) == 2 }
		}},
		{"before the nodes", func(w *world) func() bool {
			w.broken["Describe"] = errors.New("timeout")
			return func() bool {
				n := 0
				for _, c := range w.claims {
					if c.Launched {
						n++
					}
				}
				return n == 2
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			reached := c.die(w)
			w.run()
			w.submit(8)
			w.until(c.name, reached)
			w.stop()
			w.mu.Lock()
			clear(w.broken)
			clear(w.lost)
			w.mu.Unlock()
			w.run()
			w.submit(8) // the scheduler's queue fails them again, for there is no capacity yet
			w.allBound(8)
			w.exactly(2)
			if len(w.tokens) != 1 {
				t.Errorf("launched under %d tokens, want one", len(w.tokens))
			}
		})
	}
}

func TestPodThatEndsBeforeTheLaunchCancelsIt(t *testing.T) {
	w := newWorld(t)
	w.broken["Prepare"] = errors.New("not now")
	w.run()
	w.submit(1)
	w.until("a failed try", func() bool { return len(w.notes) > 1 })
	gone := w.pod(0)
	gone.Status.Phase = "Failed"
	w.pending.Handler().OnUpdate(w.pod(0), gone)
	w.mu.Lock()
	delete(w.broken, "Prepare")
	w.mu.Unlock()
	w.until("nothing left", func() bool { return len(w.claims) == 0 && len(w.instances) == 0 })
	if !w.reservations.Idle() {
		t.Error("the ledger remembers a pod that ended")
	}
}

// For example the claims have been read, but only some of the pools.
func TestNothingIsLaunchedBeforeTheLogIsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.unread = true
	w.run()
	w.submit(1)
	w.until("the pod told", func() bool { return strings.Contains(strings.Join(w.notes, "\n"), "have been read yet") })
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.claims) > 0 || len(w.tokens) > 0 {
		t.Error("launched without knowing what was launched before")
	}
}

// The cloud reports insufficient capacity without saying of which offering: the next plan would be the same, so it has to wait.
func TestInsufficientCapacityOfNothingInParticularBacksOff(t *testing.T) {
	w := newWorld(t)
	w.broken["Launch"] = fmt.Errorf("%w: for some reason", capacity.ErrInsufficientCapacity)
	w.run()
	w.submit(1)
	w.until("a pause", func() bool { return strings.Contains(strings.Join(w.notes, "\n"), "not planned for again before") })
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.handed); n > 3 {
		t.Errorf("%d claims before the first pause", n)
	}
}

// A launch call that was throttled gets the same answer under its token for ever.
func TestThrottledLaunchesAreAskedForAnewAfterAPause(t *testing.T) {
	w := newWorld(t)
	w.throttled = 2
	w.run()
	w.submit(1)
	w.allBound(1)
	w.exactly(1)
}

func TestClaimsThatWereHandedOutAreNotChanged(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.submit(4)
	w.allBound(4)
	w.exactly(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.handed {
		if c.Launched || c.ProviderID != "" {
			t.Errorf("claim %s is shared and was changed", c.Name)
		}
	}
}
