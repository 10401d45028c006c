package guard

import (
	"testing"
	"time"
)

// A pool's repairs: the first ones are free, and those of nodes that were launched since wait longer and longer.
func TestRepairsThatGoOnWait(t *testing.T) {
	g, now := New(), epoch.Add(1000*time.Hour)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	held := func(bought, when time.Duration) bool { return g.HoldsRepair("p", at(bought), at(when)) != nil }
	fault := Fault{Cause: "unhealthy", Message: "its condition KernelReady is False"}
	expect := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: held %v, want %v", what, got, want)
		}
	}
	old := -100 * time.Hour
	for i, name := range []string{"a", "b", "c"} { // three at once in a pool
		expect(name, held(old, time.Duration(i)*time.Minute), false)
		g.Repaired("p", name, fault, at(old), at(time.Duration(i)*time.Minute))
	}
	expect("the first replacement", held(-2*time.Minute, 45*time.Minute), false)
	g.Repaired("p", "d", fault, at(-2*time.Minute), at(45*time.Minute))
	g.Repaired("p", "d", fault, at(-2*time.Minute), at(46*time.Minute)) // the deletion is repeated
	expect("the second", held(44*time.Minute, 90*time.Minute), true)
	expect("another pool", g.HoldsRepair("q", at(44*time.Minute), at(90*time.Minute)) != nil, false)
	expect("a node from before", held(-30*time.Minute, 90*time.Minute), false)
	next := 45*time.Minute + 2*47*time.Minute
	expect("a moment before its turn", held(44*time.Minute, next-time.Second), true)
	expect("when it is its turn", held(44*time.Minute, next), false)
	if due := g.Due(at(next), nil); len(due) > 0 {
		t.Errorf("launches are to probe %v", due)
	}
	if text := g.Encode(Owner{Pool: "p"}, at(next)); text == "" {
		t.Error("nothing is recorded")
	} else {
		restored := New()
		if err := restored.Restore(Owner{Pool: "p"}, text); err != nil {
			t.Fatal(err)
		}
		if open, err := OpenOf(text); err != nil || len(open) > 0 {
			t.Errorf("launches seem to be paused: %v, %v", open, err)
		}
		g = restored
	}
	expect("after a restart", held(44*time.Minute, next-time.Second), true)
	g.Repaired("p", "e", fault, at(44*time.Minute), at(next))
	expect("twice as long afterwards", held(next-time.Minute, next+3*time.Hour), true)
	g.Changed(func(k Key) bool { return k.Pool == "p" }, true, at(next+3*time.Hour))
	expect("a user asks for it", held(next-time.Minute, next+3*time.Hour), false)
	g.Tick(at(next + 100*time.Hour))
	expect("long after", held(next+99*time.Hour, next+100*time.Hour), false)
	if len(g.Breakers()) > 0 {
		t.Errorf("left: %v", g.Breakers())
	}
}

// Breakers of launches in a pool that become one leave that of repairs alone: it doubles for itself.
func TestPoolsBreakerLeavesRepairs(t *testing.T) {
	g, now := New(), epoch.Add(1000*time.Hour)
	fault := Fault{Cause: "unhealthy", Message: "its condition KernelReady is False"}
	g.Repaired("p", "a", fault, now.Add(-100*time.Hour), now)
	g.Repaired("p", "b", fault, now.Add(time.Minute), now.Add(time.Hour))
	when := now.Add(time.Hour + time.Minute)
	if g.HoldsRepair("p", when.Add(-time.Minute), when) == nil {
		t.Fatal("repairs aren't paused")
	}
	for _, name := range []string{"m1", "m2", "m3"} {
		w := Workload{Owner: name}
		g.Buy(name, Bought{Purchase: Purchase{Round: name, Workloads: []Workload{w}}, Pool: "p", Class: "class", At: when})
		g.Fail(name, Fault{Cause: "taint agent", Message: "taint agent", Workloads: []Workload{w}}, when)
	}
	if b := g.breakers[PoolKey("p", "taint agent")]; b == nil || !b.Open() {
		t.Fatalf("the pool has no breaker of its own: %v", g.Breakers())
	}
	if g.HoldsRepair("p", when.Add(-time.Minute), when) == nil {
		t.Error("repairs go on")
	}
}
