package guard

import (
	"slices"
	"testing"
	"time"
)

// A zone whose Node was refused, and whose breaker one of all zones replaced, is due for a probe when its breaker opens again: nothing
// asks the API server about its Node any more.
func TestRefusedZoneThatIsBack(t *testing.T) {
	g, now := New(), epoch
	g.Recovered(now)
	buy := func(name, zone string, probes ...Key) {
		g.Buy(name, Bought{Purchase: Purchase{Round: name, Workloads: []Workload{workload("w")}, Probes: probes}, Pool: "p", Class: "c", Images: []string{"i"}, Zones: []string{zone}, At: now})
		g.Locate(name, "i", zone)
	}
	buy("ok", "y")
	g.Initialized("ok", now)
	now = now.Add(time.Minute)
	buy("refused", "x")
	g.Fail("refused", Fault{Machine: true, Refused: true, Cause: "Node refused"}, now)
	g.End("refused", now)
	now = now.Add(3 * time.Hour)
	buy("dead", "y")
	now = now.Add(15 * time.Minute)
	g.Fail("dead", Fault{Machine: true, Cause: "never registered"}, now)
	g.End("dead", now)
	buy("probe", "y", MachineKey("c", "i", ""))
	g.Initialized("probe", now)
	now = now.Add(2 * time.Minute)
	g.Steady("probe", now)
	b := g.HoldsMachine("c", "i", "x")
	if b == nil {
		t.Fatal("the zone is not held: the test shows nothing")
	}
	if !slices.Contains(g.Due(now, nil), b.Key) {
		t.Errorf("the zone is neither due nor free: %s", b.Text())
	}
}

// A doubt about a gang's round ends with its machines, whatever else was bought in the same plan.
func TestDoubtEndsWithItsMachines(t *testing.T) {
	g, now := New(), epoch
	g.Recovered(now)
	gang, web := workload("gang"), workload("web")
	buy := func(name string, w Workload) {
		g.Buy(name, Bought{Purchase: Purchase{Round: "r", Workloads: []Workload{w}}, Pool: "p", Class: "c", Images: []string{"i"}, At: now})
		g.Locate(name, "i", "z")
	}
	for _, n := range []string{"g1", "g2", "g3"} {
		buy(n, gang)
	}
	buy("web", web)
	now = now.Add(time.Minute)
	g.Serve("web", web, now)
	g.Fail("g1", Fault{Cause: "preempted", Workloads: []Workload{gang}}, now) // one of three: no breaker opens
	if g.Doubts(PodKey("p", gang)) == nil {
		t.Fatal("no doubt: the test shows nothing")
	}
	for _, n := range []string{"g1", "g2", "g3"} { // the others end, which is no failure
		g.End(n, now)
	}
	if d := g.Doubts(PodKey("p", gang)); d != nil {
		t.Errorf("no machine of the gang is there: doubt %+v", *d)
	}
}

// The doubt also doesn't return when the guard forgets that a machine served, which had ended the doubt.
func TestDoubtDoesNotComeBack(t *testing.T) {
	g, now := New(), epoch
	g.Recovered(now)
	w := workload("w")
	for _, n := range []string{"a", "b", "c", "d"} {
		g.Buy(n, Bought{Purchase: Purchase{Round: "r", Workloads: []Workload{w}}, Pool: "p", Class: "c", Images: []string{"i"}, At: now})
		g.Locate(n, "i", "z")
	}
	now = now.Add(5 * time.Minute)
	for _, n := range []string{"a", "b"} {
		g.Initialized(n, now)
		g.Serve(n, w, now)
	}
	for _, n := range []string{"c", "d"} {
		g.Fail(n, Fault{Machine: true, Cause: "never registered"}, now)
		g.End(n, now)
	}
	now = now.Add(49 * time.Hour)
	g.Tick(now)
	if d := g.Doubts(MachineKey("c", "i", "")); d != nil {
		t.Errorf("a doubt 49 h after two machines of the round did work: %+v", *d)
	}
}

// A pool's probe is for a pod that never runs, for a reason of its own: other pods don't wait for it for ever.
func TestProbeOfAPoolWithoutAVerdict(t *testing.T) {
	g, now := New(), epoch
	g.Recovered(now)
	for _, n := range []string{"w1", "w2", "w3"} {
		g.Buy(n, Bought{Purchase: Purchase{Round: n, Workloads: []Workload{workload(n)}}, Pool: "p", Class: "c", Images: []string{"i"}, At: now})
		g.Fail(n, Fault{Cause: "taint x"}, now)
		g.End(n, now)
	}
	pool := PoolKey("p", "taint x")
	buy := func(name string) {
		g.Buy(name, Bought{Purchase: Purchase{Round: name, Workloads: []Workload{workload("bad-image")}, Probes: []Key{pool}}, Pool: "p", Class: "c", Images: []string{"i"}, At: now})
	}
	buy("probe")
	bought := 0
	for range 24 * 60 {
		now = now.Add(time.Minute)
		g.Tick(now)
		if slices.Contains(g.Due(now, nil), pool) {
			bought++
			buy(now.String())
		}
	}
	if bought == 0 || bought > 24*4 {
		t.Errorf("%d more were tried in a day: want some, and no more than one each pause", bought)
	}
	g.Serve("probe", workload("bad-image"), now)
	if b := g.HoldsPods("p", workload("innocent"), now); b != nil {
		t.Errorf("the first has done work in the end, and the pool is held: %s", b.Text())
	}
}

// A pod that never runs, for a reason of its own, does not make others wait for ever in a pool where nothing has failed.
func TestATrialWithoutAVerdict(t *testing.T) {
	g, now := New(), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	g.Recovered(now)
	for _, w := range []Workload{workloadA, workloadB} {
		g.Buy(w.Owner, boughtFor(now, w.Owner, "one", w))
		g.Fail(w.Owner, Fault{Cause: "taint", Message: "taint"}, now)
		g.End(w.Owner, now)
	}
	first, other := PodKey("two", workloadA), PodKey("two", workloadB)
	asked := func(w Workload) []Key {
		g.HoldsPods("two", w, now)
		return g.Due(now, nil)
	}
	if !slices.Contains(asked(workloadA), first) {
		t.Fatal("there is no trial")
	}
	g.Buy("trial", boughtFor(now, "trial", "two", workloadA, first)) // its only pod's image can't be pulled
	for range 48 * 60 {
		now = now.Add(time.Minute)
		g.Tick(now)
		if slices.Contains(asked(workloadB), other) {
			return
		}
	}
	t.Errorf("after two days %s is still held back by the trial of %s", other, first)
}

// The same within one key: pods and Jobs that no other object owns share a key by their shape, whatever their images.
func TestAProbeWithoutAVerdict(t *testing.T) {
	g, now := New(), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	g.Recovered(now)
	shape := Workload{Namespace: "default", Owner: "shape 1234"}
	k := PodKey("one", shape)
	g.Buy("bad", boughtFor(now, "r", "one", shape))
	g.Fail("bad", Fault{Cause: "taint", Message: "taint"}, now)
	g.End("bad", now)
	g.Buy("probe", boughtFor(now, "probe", "one", shape, k)) // for a Job whose image can't be pulled
	for range 48 * 60 {
		now = now.Add(time.Minute)
		g.Tick(now)
		if slices.Contains(g.Due(now, nil), k) {
			return
		}
	}
	t.Error("after two days no other pod of the shape has been tried")
}
