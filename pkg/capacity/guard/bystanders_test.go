package guard

import (
	"fmt"
	"testing"
	"time"
)

// TestBystanders makes machines fail for some pods for a day, while other pods arrive one by one, and limits how long those wait.
func TestBystanders(t *testing.T) {
	good := func(i int) pod {
		return pod{workload: Workload{Namespace: "n", Owner: fmt.Sprintf("Deployment/good%d", i%3)}, desired: 1}
	}
	isGood := func(p pod) bool { return p.workload.Owner[:len("Deployment/g")] == "Deployment/g" }
	tests := []struct {
		name   string
		bad    int
		places []place
		fate   func(b *buyer, n *node)
		// most is the longest time that a good pod waits; failed is the number of failed machines in the day.
		most   time.Duration
		failed int
	}{
		{
			name: "pods of two workloads are thrown off", bad: 2, places: []place{{"a", "x"}},
			fate: func(b *buyer, n *node) { thrown(time.Second)(b, n) },
			most: 0, failed: 2 * 9,
		},
		{
			// Two probes have failed before the first of the good pods arrives.
			name: "pods of ten workloads are thrown off, so that the pool is paused until one of another does work", bad: 10, places: []place{{"a", "x"}},
			fate: func(b *buyer, n *node) { thrown(time.Second)(b, n) },
			most: 30 * time.Minute, failed: 10 * 9,
		},
		{
			name: "pods of ten workloads are thrown off, and the same becomes of another pool", bad: 10, places: []place{{"a", "x"}, {"b", "x"}},
			fate: func(b *buyer, n *node) { thrown(time.Second)(b, n) },
			most: 30 * time.Minute, failed: 2 * 10 * 9,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			asked := map[string][]time.Time{}
			var longest time.Duration
			b := newBuyer(t, func(b *buyer, n *node) {
				if !isGood(n.pods[0]) {
					test.fate(b, n)
					return
				}
				for _, p := range n.pods {
					of := p.workload.Owner
					longest = max(longest, b.now.Sub(asked[of][0]))
					asked[of] = asked[of][1:]
				}
				b.after(4*time.Minute, func() { b.serve(n) })
			}, test.places...).wants(test.bad, 1)
			i := 0
			b.each(17*time.Minute, func() {
				p := good(i)
				i++
				asked[p.workload.Owner] = append(asked[p.workload.Owner], b.now)
				b.waiting = append(b.waiting, p)
			})
			b.run(day)
			failed := 0
			for _, n := range b.bought {
				if n.failed {
					failed++
				}
			}
			t.Logf("a good pod waited %s at most, %d machines failed", longest, failed)
			if longest > test.most || failed > test.failed {
				t.Errorf("a good pod waited %s, %d machines failed, want at most %s, %d", longest, failed, test.most, test.failed)
			}
			for _, p := range b.waiting {
				if isGood(p) {
					t.Errorf("%s still waits", p.workload)
				}
			}
		})
	}
}

// TestOldMachinesProveNothing lets old machines go on serving short-lived pods, while no new machine registers.
func TestOldMachinesProveNothing(t *testing.T) {
	sick := false
	b := newBuyer(t, func(b *buyer, n *node) {
		if sick {
			broken(15*time.Minute)(b, n)
			return
		}
		b.after(4*time.Minute, func() { b.serve(n) })
	}).wants(1, 20)
	b.after(30*time.Minute, func() {
		sick = true
		b.wants(1, 20)
	})
	i := 0
	b.each(time.Minute, func() { // a Job on a machine with free capacity
		n := b.bought[i%20]
		i++
		b.g.Serve(n.name, Workload{Namespace: "n", Owner: fmt.Sprintf("CronJob/%d", i%7)}, b.now)
	})
	b.each(100*time.Minute, b.restart)
	b.run(day)
	if all, _ := b.count(day); all > 20+20+8 {
		t.Errorf("%d machines were bought, want at most 20 that do work, 20 in the round that fails, and 8 probes", all)
	}
}

// TestRefusedNodes makes the API server refuse Nodes for a day; a dry run is refused as well, or it is not.
func TestRefusedNodes(t *testing.T) {
	for _, agrees := range []bool{false, true} {
		b := newBuyer(t, func(b *buyer, n *node) {
			b.after(2*time.Minute, func() {
				b.g.Fail(n.name, Fault{Machine: true, Cause: "Node refused", Message: "denied", Refused: true}, b.now)
				b.end(n, true)
			})
		}).wants(1, 10)
		b.each(time.Minute, func() {
			for _, o := range b.g.Breakers() {
				if agrees && o.Refused {
					b.g.Accepted(o.Key, b.now)
				}
			}
		})
		b.run(day)
		_, after := b.count(day)
		if most := map[bool]int{false: 0, true: 8 + earlyPerDay}[agrees]; after > most {
			t.Errorf("%d machines after the first round, want at most %d (the dry run agrees: %t)", after, most, agrees)
		}
	}
}

// TestChangesAllDay makes a change every minute that concerns a breaker: that costs six more machines.
func TestChangesAllDay(t *testing.T) {
	b := newBuyer(t, thrown(time.Second)).wants(1, 1)
	b.each(time.Minute, func() { b.g.Changed(func(Key) bool { return true }, false, b.now) })
	b.each(4*time.Hour, b.restart)
	b.run(day)
	if all, _ := b.count(day); all > 9+earlyPerDay {
		t.Errorf("%d machines, want at most 9 and %d", all, earlyPerDay)
	}
}
