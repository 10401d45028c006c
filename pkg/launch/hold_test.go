package launch

import (
	"errors"
	"strings"
	"testing"
)

func (w *world) noted(words string) func() bool {
	return func() bool { return strings.Contains(strings.Join(w.notes, "\n"), words) }
}

func TestNothingIsLaunchedBesideAnotherOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.owner = "Karpenter leads"
	w.run()
	w.submit(5)
	w.until("a word about it", w.noted("nothing can be launched: Karpenter leads"))
	w.mu.Lock()
	if len(w.claims) > 0 || len(w.tokens) > 0 {
		t.Error("launched although somebody else owns the nodes")
	}
	w.mu.Unlock()
	w.goes()
	w.allBound(5)
	w.exactly(2)
}

// Another controller takes over while this one leads: launches that were not requested yet are not made.
func TestOwnerThatComesLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	w.submit(4)
	w.allBound(4)
	w.mu.Lock()
	w.owner = "Karpenter leads"
	w.mu.Unlock()
	w.submitPod(4)
	w.until("a word about it", w.noted("p4 FailedProvisioning nothing can be launched: Karpenter leads"))
	w.goes()
	w.allBound(5)
	w.exactly(2)
}

// It takes over between the record of a launch and its next call: the claims end, no call is made, and the pods get the reason.
func TestOwnerThatComesBetweenTwoCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.throttled = 1
	w.during["Launch"] = func() { w.owner = "Karpenter leads" }
	w.run()
	w.submit(1)
	w.until("a word about it and no claim", func() bool {
		return w.noted("p0 FailedProvisioning nothing can be launched: Karpenter leads")() && len(w.claims) == 0
	})
	w.mu.Lock()
	if w.calls["Launch"] != 1 || len(w.instances) > 0 {
		t.Errorf("%d calls, %d instances", w.calls["Launch"], len(w.instances))
	}
	w.during["Launch"] = nil
	w.mu.Unlock()
	w.goes()
	w.allBound(1)
	w.exactly(1)
}

// A leader finds a launch from before the restart, and another controller in charge: it waits, and then makes the call.
func TestRestartBesideAnotherOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broken["Launch"] = errors.New("timeout")
	w.run()
	w.submit(4)
	w.until("the call", func() bool { return w.calls["Launch"] > 0 })
	w.stop()
	clear(w.broken)
	w.owner, w.calls["Launch"] = "Karpenter leads", 0
	w.run()
	w.submit(5) // one more
	w.until("a word about it", w.noted("p4 FailedProvisioning nothing can be launched: Karpenter leads"))
	w.mu.Lock()
	if w.calls["Launch"] != 0 || len(w.claims) != 1 {
		t.Errorf("%d calls, %d claims beside another owner; want what was there", w.calls["Launch"], len(w.claims))
	}
	w.mu.Unlock()
	w.goes()
	w.allBound(5)
	w.exactly(2)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tokens) != 2 {
		t.Errorf("launched under %d tokens, want the old one and another", len(w.tokens))
	}
}
