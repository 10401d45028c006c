package spending

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// An instance whose node is emptied after a restart while its pods wait has failed all the same.
func TestEmptiedAfterARestart(t *testing.T) {
	p := newPurse(t, Config{})
	pod := p.pod("p", "")
	c := p.buys("c", pod)
	c.Slots = []capacity.Slot{{Pod: capacity.RefOf(pod)}}
	p.restart(Config{})
	p.pending.Handler().OnAdd(pod, false)
	if err := p.Restore(t.Context(), []*capacity.Claim{c}); err != nil {
		t.Fatal(err)
	}
	p.Emptied("c")
	p.Ended("c", true)
	if got, want := p.verdict("c"), "failed: node pool pool, d ReplicaSet/web: given back"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The reason why an instance ends was reported before the restart and is not reported again: it counts as no failure.
func TestMachineThatEndsOverARestart(t *testing.T) {
	p := newPurse(t, Config{})
	c := p.buys("c")
	c.Deleting = true
	p.restart(Config{})
	if err := p.Restore(t.Context(), []*capacity.Claim{c}); err != nil {
		t.Fatal(err)
	}
	p.Ended("c", true)
	if got := p.verdict("c"); got != "neither" {
		t.Error(got)
	}
}

// An instance that has served isn't counted again after a restart, and closes no breaker by that.
func TestServedOverARestart(t *testing.T) {
	p := newPurse(t, Config{})
	c := p.buys("c")
	c.Served, c.ServedAt = true, p.clock.Now()
	p.restart(Config{})
	if err := p.Restore(t.Context(), []*capacity.Claim{c}); err != nil {
		t.Fatal(err)
	}
	p.Ended("c", true)
	if got := p.verdict("c"); got != "neither" || len(p.state.served) > 0 {
		t.Error(got, p.state.served)
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
			p := newPurse(t, Config{})
			p.seen["node-old"] = []*corev1.Pod{p.pod("old", "node-old", phase(tt.phase))}
			fails := func(name string, probes ...guard.Key) {
				c := p.buysFor(name, probes...)
				p.clock.Step(time.Minute)
				p.Fail(c.Name, tt.fault)
				p.Ended(c.Name, true)
			}
			fails("bad")
			old := p.buysFor("old", tt.key)
			old.NodeName, old.Initialized, old.InitializedAt = "node-old", true, p.clock.Now()
			p.Observe(old)
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
			p.kept[o] = p.state.breakers.Encode(o, p.clock.Now())
			p.mu.Unlock()
			p.restart(Config{})
			if err := p.Restore(context.Background(), []*capacity.Claim{old}); err != nil {
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
	p.Buy(c, nil, nil)
	p.Named(name, "node-"+name)
	return c
}

// An instance that served a short Job counts as served after a restart, too: another failure of its round opens no breaker.
func TestServedForWhomAfterARestart(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		p := newPurse(t, Config{})
		done := p.pod("done", "node-m1", phase(corev1.PodSucceeded))
		one, two := p.buys("m1", done), p.buys("m2")
		one.Purchase.Round, two.Purchase.Round = "r", "r"
		p.state.breakers = guard.New()
		p.state.breakers.Recovered(p.clock.Now())
		for _, c := range []*capacity.Claim{one, two} {
			p.state.breakers.Buy(c.Name, guard.Bought{Purchase: *c.Purchase, Pool: c.Pool, Class: c.NodeClass, At: p.clock.Now()})
			p.state.breakers.Locate(c.Name, "ami", "a")
		}
		p.clock.Step(time.Second)
		p.podChanged(done, false)
		p.podChanged(done, true)
		if !p.state.breakers.Served("m1") {
			t.Fatal("not served")
		}
		one.Served, one.ServedAt = true, p.clock.Now()
		if restarts {
			p.restart(Config{})
			if err := p.Restore(t.Context(), []*capacity.Claim{one, two}); err != nil {
				t.Fatal(err)
			}
			p.Named("m2", "node-m2")
		}
		p.podChanged(p.pod("x", "node-m2", target("DeletionByTaintManager", ""), deleted), false)
		p.passes(3 * time.Second)
		if b := p.state.breakers.HoldsPods("pool", web, p.clock.Now()); b != nil {
			t.Errorf("restarts %v: %s", restarts, b.Text())
		}
	}
}
