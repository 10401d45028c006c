package launch

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

var ofPool = guard.Owner{Pool: "pool"}

// A new leader knows what the last one knew: what is paused, and what is being probed already.
func TestRestartRestoresBreakersAndMachines(t *testing.T) {
	w, _ := guarded(t, spending.Config{})
	w.opens(badPods, thrown)
	w.submit(4)
	w.plans()
	w.parts.plans.Probes.Probe(t.Context())
	w.settled()
	w.parts.writer.WriteRecords(t.Context())
	before := w.bought()
	if len(before) != 1 || !strings.Contains(w.kept[ofPool], before[0]) {
		t.Fatalf("bought %v, kept %q", before, w.kept)
	}
	w.leads()
	if w.spending.Decided(before[0]) || len(w.spending.Due()) != 0 {
		t.Errorf("due %v: the probe is not known", w.spending.Due())
	}
	w.submitPod(10, 11, 12, 13, 14, 15)
	w.plans()
	w.parts.plans.Probes.Probe(t.Context())
	w.settled()
	if got := w.bought(); len(got) != 1 {
		t.Errorf("bought %v, want none beside %v", got, before)
	}
}

// Nothing is bought before the records are read.
func TestNothingIsBoughtBeforeTheRecordsAreRead(t *testing.T) {
	w, c := guarded(t, spending.Config{})
	w.kept[ofPool] = "" // anything
	w.broken["GuardRecords"] = errors.New("forbidden")
	w.submit(1)
	w.build()
	done := make(chan struct{})
	go func() { w.parts.recovery.recover(t.Context(), func() {}); close(done) }()
	for !c.HasWaiters() {
		select {
		case <-done:
			t.Fatal("went on without records")
		default:
		}
	}
	w.mu.Lock()
	clear(w.broken)
	w.mu.Unlock()
	for range 100 {
		c.Step(maxRetry)
		select {
		case <-done:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("does not go on")
}

// A claim that ends while the next leader recovers is not watched for ever.
func TestClaimThatEndsDuringRecovery(t *testing.T) {
	w, _ := guarded(t, spending.Config{})
	w.submit(1)
	w.plans()
	name := w.bought()[0]
	w.build()
	w.during["Describe"] = nil
	claims := w.parts.claims.Claims()
	w.mu.Lock()
	delete(w.claims, name)
	w.mu.Unlock()
	w.parts.Claims.ClaimGone(name, "deleted")
	w.parts.recovery.restoreSpending(t.Context(), claims)
	if !w.spending.Decided(name) {
		t.Error("a machine is watched that there is not")
	}
}

// A Node that the API server refuses is tried with a dry run each minute, and no instance is bought until it is accepted.
func TestRefusedNodeIsAskedAbout(t *testing.T) {
	w, c := guarded(t, spending.Config{})
	s := w.spending
	claim := &capacity.Claim{Name: "c", Pool: "pool", NodeClass: "class", Launched: true, CreatedAt: c.Now(), Purchase: &guard.Purchase{Round: "r"}}
	s.Buy(claim, nil, nil)
	s.NodeRefused(claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, errors.New("denied by policy"))
	s.Ended("c", true)
	w.broken["CreateNode"] = errors.New("denied by policy")
	for range 150 {
		w.parts.writer.RetryNodes(t.Context())
		c.Step(time.Second)
	}
	if n := w.calls["TryNode"]; n != 3 {
		t.Errorf("asked %d times in two and a half minutes", n)
	}
	if got := s.Due(); len(got) != 0 {
		t.Errorf("to be probed: %v", got)
	}
	clear(w.broken)
	c.Step(time.Minute)
	w.parts.writer.RetryNodes(t.Context())
	if got := s.Due(); len(got) != 1 {
		t.Errorf("to be probed: %v, want the node class", got)
	}
}

// Events about a breaker are recorded on the object that it is about.
func TestBreakersAreReported(t *testing.T) {
	w, _ := guarded(t, spending.Config{})
	w.opens(badImage, broken)
	w.opens(badPods, thrown)
	w.parts.demand.Verdicts.Tend(t.Context())
	if !w.says("class LaunchesPaused", "no kubelet came", "annotation dovetail.sh/retry") || !w.says("pool LaunchesPaused", "taint x evicts it") {
		t.Errorf("told %q", w.notes)
	}
	n := len(w.notes)
	w.parts.demand.Verdicts.Tend(t.Context())
	if len(w.notes) != n {
		t.Errorf("told again: %q", w.notes[n:])
	}
}
