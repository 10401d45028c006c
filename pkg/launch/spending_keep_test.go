package launch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

var ofPool = guard.Owner{Pool: "pool"}

// A new leader knows what the last one knew: what is paused, and what is being probed already.
func TestRestartRestoresBreakersAndMachines(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{})
	w.opens(badPods, thrown)
	w.submit(4)
	w.plans()
	w.parts.prober.probe(t.Context())
	w.settled()
	w.parts.records.keepRecords(t.Context())
	before := w.bought()
	if len(before) != 1 || !strings.Contains(w.kept[ofPool], before[0]) {
		t.Fatalf("bought %v, kept %q", before, w.kept)
	}
	w.leads()
	if len(w.spending.machines) != 1 || len(w.spending.due()) != 0 {
		t.Errorf("machines %v, due %v: the probe is not known", w.spending.machines, w.spending.due())
	}
	w.submitPod(10, 11, 12, 13, 14, 15)
	w.plans()
	w.parts.prober.probe(t.Context())
	w.settled()
	if got := w.bought(); len(got) != 1 {
		t.Errorf("bought %v, want none beside %v", got, before)
	}
}

// A record that can't be read is logged, and overwritten; so is a record for which there is no longer a reason.
func TestRecordsOfAnEarlierProcessAreWrittenOver(t *testing.T) {
	w, c := guarded(t, SpendingConfig{})
	w.kept[ofPool] = "{nonsense"
	w.leads()
	w.parts.records.keepRecords(t.Context())
	if got := w.kept[ofPool]; got != "" {
		t.Errorf("kept %q", got)
	}
	w.opens(badPods, thrown)
	w.parts.records.keepRecords(t.Context())
	if w.kept[ofPool] == "" {
		t.Fatal("nothing is kept")
	}
	w.leads()
	c.Step(48 * time.Hour) // no probe has been due
	w.spending.settle(w.reservations)
	w.parts.records.keepRecords(t.Context())
	if got := w.kept[ofPool]; got != "" {
		t.Errorf("still kept after two days: %q", got)
	}
}

// A failed write is repeated, and an unchanged record isn't written.
func TestRecordsAreWrittenWhenTheyChange(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{})
	w.broken["RecordGuard"] = errors.New("conflict")
	w.opens(badPods, thrown)
	w.parts.records.keepRecords(t.Context())
	clear(w.broken)
	w.parts.records.keepRecords(t.Context())
	if w.kept[ofPool] == "" {
		t.Error("not tried again")
	}
	n := w.calls["RecordGuard"]
	w.spending.mu.Lock()
	w.spending.dirty[ofPool] = true
	w.spending.mu.Unlock()
	w.parts.records.keepRecords(t.Context())
	w.parts.records.keepRecords(t.Context())
	if w.calls["RecordGuard"] != n {
		t.Error("written though it is the same")
	}
}

// Nothing is bought before the records are read.
func TestNothingIsBoughtBeforeTheRecordsAreRead(t *testing.T) {
	w, c := guarded(t, SpendingConfig{})
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

// An instance whose node is emptied after a restart while its pods wait has failed all the same.
func TestEmptiedAfterARestart(t *testing.T) {
	p := newPurse(t, SpendingConfig{})
	pod := p.pod("p", "")
	c := p.buys("c", pod)
	c.Slots = []capacity.Slot{{Pod: capacity.RefOf(pod)}}
	p.restart(SpendingConfig{})
	p.pending.Handler().OnAdd(pod, false)
	if err := p.restore(t.Context(), []*capacity.Claim{c}); err != nil {
		t.Fatal(err)
	}
	p.Emptied("c")
	p.overClaim("c", true)
	if got, want := p.verdict("c"), "failed: node pool pool, d ReplicaSet/web: given back"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A claim that ends while the next leader recovers is not watched for ever.
func TestClaimThatEndsDuringRecovery(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{})
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
	w.parts.records.restoreSpending(t.Context(), claims)
	if n := len(w.spending.machines); n != 0 {
		t.Errorf("%d machines are watched that there are not", n)
	}
}

// The reason why an instance ends was reported before the restart and is not reported again: it counts as no failure.
func TestMachineThatEndsOverARestart(t *testing.T) {
	p := newPurse(t, SpendingConfig{})
	c := p.buys("c")
	c.Deleting = true
	p.restart(SpendingConfig{})
	if err := p.restore(t.Context(), []*capacity.Claim{c}); err != nil {
		t.Fatal(err)
	}
	p.overClaim("c", true)
	if got := p.verdict("c"); got != "neither" {
		t.Error(got)
	}
}

// An instance that has served isn't counted again after a restart, and closes no breaker by that.
func TestServedOverARestart(t *testing.T) {
	p := newPurse(t, SpendingConfig{})
	c := p.buys("c")
	c.Served, c.ServedAt = true, p.clock.Now()
	p.restart(SpendingConfig{})
	if err := p.restore(t.Context(), []*capacity.Claim{c}); err != nil {
		t.Fatal(err)
	}
	p.overClaim("c", true)
	if got := p.verdict("c"); got != "neither" || len(p.served) > 0 {
		t.Error(got, p.served)
	}
}

// Served is recorded on the claim, and retried after a failed write.
func TestServedIsRecorded(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{})
	w.submit(1)
	w.plans()
	name := w.bought()[0]
	s := w.spending
	s.mu.Lock()
	s.served[name], s.served["gone"] = true, true
	s.mu.Unlock()
	for range 2 {
		w.parts.records.keepServed(t.Context())
	}
	if !w.claims[name].Served || len(w.served) != 1 {
		t.Errorf("served: %v, written for %v", w.claims[name].Served, w.served)
	}
}

// A Node that the API server refuses is tried with a dry run each minute, and no instance is bought until it is accepted.
func TestRefusedNodeIsAskedAbout(t *testing.T) {
	w, c := guarded(t, SpendingConfig{})
	s := w.spending
	claim := &capacity.Claim{Name: "c", Pool: "pool", NodeClass: "class", Launched: true, CreatedAt: c.Now(), Purchase: &guard.Purchase{Round: "r"}}
	s.buy(claim, nil, nil)
	s.nodeRefused(claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, errors.New("denied by policy"))
	s.overClaim("c", true)
	w.broken["CreateNode"] = errors.New("denied by policy")
	for range 150 {
		w.parts.records.askAboutNodes(t.Context())
		c.Step(time.Second)
	}
	if n := w.calls["TryNode"]; n != 3 {
		t.Errorf("asked %d times in two and a half minutes", n)
	}
	if got := s.due(); len(got) != 0 {
		t.Errorf("to be probed: %v", got)
	}
	clear(w.broken)
	c.Step(time.Minute)
	w.parts.records.askAboutNodes(t.Context())
	if got := s.due(); len(got) != 1 {
		t.Errorf("to be probed: %v, want the node class", got)
	}
}

// Events about a breaker are recorded on the object that it is about.
func TestBreakersAreReported(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{})
	w.opens(badImage, broken)
	w.opens(badPods, thrown)
	w.parts.records.tendSpending(t.Context())
	if !w.says("class LaunchesPaused", "no kubelet came", "annotation dovetail.sh/retry") || !w.says("pool LaunchesPaused", "taint x evicts it") {
		t.Errorf("told %q", w.notes)
	}
	n := len(w.notes)
	w.parts.records.tendSpending(t.Context())
	if len(w.notes) != n {
		t.Errorf("told again: %q", w.notes[n:])
	}
}

// A new leader doesn't take an old instance's success for that of a probe.
func TestANewLeaderKeepsABreakerThatHasOpenedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		key   guard.Key
		fault guard.Fault
		phase corev1.PodPhase
	}{
		"machine fault": {guard.MachineKey("class", "ami", ""), guard.Fault{Machine: true, Cause: "x", Message: "x"}, corev1.PodRunning},
		"pod fault":     {guard.PodKey("pool", web), guard.Fault{Cause: "taint x", Message: "x"}, corev1.PodSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPurse(t, SpendingConfig{})
			p.seen["node-old"] = []*corev1.Pod{p.pod("old", "node-old", phase(tt.phase))}
			fails := func(name string, probes ...guard.Key) {
				c := p.buysFor(name, probes...)
				p.clock.Step(time.Minute)
				p.fail(c.Name, tt.fault)
				p.overClaim(c.Name, true)
			}
			fails("bad")
			old := p.buysFor("old", tt.key)
			old.NodeName, old.Initialized, old.InitializedAt = "node-old", true, p.clock.Now()
			p.observe(old)
			p.passes(3 * time.Minute)
			old.Served, old.ServedAt = true, p.clock.Now()
			if got := p.verdict("old"); got != "served" {
				t.Fatal(got)
			}
			p.clock.Step(time.Hour)
			fails("bad2")
			for i := range 3 {
				p.clock.Step(7 * time.Hour)
				fails(fmt.Sprint("probe", i), tt.key)
			}
			p.passes(3 * time.Minute)
			open := func() string { return p.verdict("old") }
			before := open()
			if before == "served" {
				t.Fatal("nothing is paused")
			}
			p.mu.Lock()
			o := guard.OwnerOf(tt.key)
			p.kept[o] = p.guard.Encode(o, p.clock.Now())
			p.mu.Unlock()
			p.restart(SpendingConfig{})
			if err := p.restore(context.Background(), []*capacity.Claim{old}); err != nil {
				t.Fatal(err)
			}
			if got := open(); got != before {
				t.Errorf("after a change of leader: %s; before: %s: nothing has been tried", got, before)
			}
		})
	}
}

// buysFor is buys for a probe.
func (p *purse) buysFor(name string, probes ...guard.Key) *capacity.Claim {
	c := &capacity.Claim{Name: name, UID: "uid-" + name, Pool: "pool", NodeClass: "class", CreatedAt: p.clock.Now(), ImageID: "ami", Zone: "a", Launched: true,
		Purchase: &guard.Purchase{Round: "round-of-" + name, Workloads: []guard.Workload{web}, Probes: probes}}
	p.buy(c, nil, nil)
	p.named(name, "node-"+name)
	return c
}
