package guard

import (
	"fmt"
	"testing"
	"time"
)

var (
	workloadA = Workload{Namespace: "default", Owner: "Deployment/a"}
	workloadB = Workload{Namespace: "default", Owner: "Deployment/b"}
)

func boughtFor(at time.Time, round, pool string, w Workload, probes ...Key) Bought {
	return Bought{Purchase: Purchase{Round: round, Workloads: []Workload{w}, Probes: probes}, Pool: pool, Class: "class", Images: []string{"image"}, Zones: []string{"z"}, At: at}
}

// A machine that closed a breaker once tells nothing about the same breaker after it has opened again, however many restarts follow.
func TestARestartDoesNotCloseWhatHasOpenedAgain(t *testing.T) {
	start := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	machineKey, podKey := MachineKey("class", "image", ""), PodKey("pool", workloadA)
	for name, tt := range map[string]struct {
		key    Key
		fault  Fault
		within time.Duration // it opens again this long after it closed
	}{
		"machine fault":                 {machineKey, Fault{Machine: true, Cause: "c", Message: "c"}, 10 * time.Hour},
		"pod fault":                     {podKey, Fault{Cause: "c", Message: "c"}, 10 * time.Hour},
		"machine fault, two days later": {machineKey, Fault{Machine: true, Cause: "c", Message: "c"}, 48 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			owner := OwnerOf(tt.key)
			g, now := New(), start
			g.Recovered(now)
			g.Buy("bad", boughtFor(now, "r1", "pool", workloadA))
			g.Locate("bad", "image", "z")
			now = now.Add(15 * time.Minute)
			g.Fail("bad", tt.fault, now)
			g.End("bad", now)
			probe := boughtFor(now, "r2", "pool", workloadA, tt.key)
			g.Buy("probe", probe)
			g.Locate("probe", "image", "z")
			now = now.Add(5 * time.Minute)
			g.Initialized("probe", now)
			g.Steady("probe", now)
			g.Serve("probe", workloadA, now)
			served := now
			if b := g.breakers[tt.key]; b == nil || b.Open() {
				t.Fatal("the probe has not closed it")
			}
			now = now.Add(tt.within)
			g.Tick(now)
			g.Buy("bad2", boughtFor(now, "r3", "pool", workloadA))
			g.Locate("bad2", "image", "z")
			now = now.Add(15 * time.Minute)
			g.Fail("bad2", tt.fault, now)
			g.End("bad2", now)
			for i := range 3 { // failing probes
				now = now.Add(7 * time.Hour)
				p := fmt.Sprint("p", i)
				g.Buy(p, boughtFor(now, p, "pool", workloadA, tt.key))
				g.Locate(p, "image", "z")
				now = now.Add(15 * time.Minute)
				g.Fail(p, tt.fault, now)
				g.End(p, now)
			}
			if b := g.breakers[tt.key]; b == nil || !b.Open() || len(g.Due(now, nil)) != 0 {
				t.Fatal("it is not paused")
			}

			// As Spending.restore does, two minutes of a pod that still runs there included.
			next := New()
			if err := next.Restore(owner, g.Encode(owner, now)); err != nil {
				t.Fatal(err)
			}
			next.Buy("probe", probe)
			next.Locate("probe", "image", "z")
			next.Serve("probe", NoPod, served)
			next.Initialized("probe", served)
			next.Recovered(now)
			now = now.Add(2 * time.Minute)
			next.Steady("probe", now)
			next.Serve("probe", workloadA, now)
			// The same without a restart.
			g.Steady("probe", now)
			g.Serve("probe", workloadA, now)
			if b := g.breakers[tt.key]; !b.Open() {
				t.Fatal("closed without a restart, too")
			}
			if b := next.breakers[tt.key]; b == nil || !b.Open() {
				t.Errorf("after a restart the machine that was a probe %s ago has closed the breaker: the whole demand is bought again", now.Sub(probe.At))
			}
		})
	}
}

// A replacement whose pods have not moved yet has served. That tells nothing about its pods, also after a restart.
func TestMovesThatHaveNotComeAfterARestart(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	m := boughtFor(now, "r", "two", workloadA)
	m.Moves = true
	fails := func(g *Guard) {
		g.Recovered(now)
		g.Buy("bad", boughtFor(now, "bad", "one", workloadA))
		g.Fail("bad", Fault{Cause: "taint", Message: "taint"}, now)
		g.End("bad", now)
	}
	served := now.Add(2 * time.Minute)
	live, next := New(), New()
	fails(live)
	live.Buy("m", m)
	live.Initialized("m", now)
	live.Steady("m", served)

	next.Buy("m", m)
	next.Serve("m", NoPod, served) // as Spending.restore reports what is recorded on the claim
	next.Initialized("m", now)
	fails(next)
	later := served.Add(time.Minute)
	a, b := live.HoldsPods("two", workloadA, later), next.HoldsPods("two", workloadA, later)
	if a == nil {
		t.Fatal("without a restart nothing is on trial")
	}
	if b == nil {
		t.Error("after a restart the first purchase in another pool is no trial any more: pods that never ran there count as work done there")
	}
}
