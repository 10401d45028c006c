package guard

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const day = 24 * time.Hour

// thrown throws the pods off each machine after a time.
func thrown(after time.Duration) func(*buyer, *node) {
	return func(b *buyer, n *node) { b.after(after, func() { b.throwOff(n, "taint agent", true) }) }
}

func broken(after time.Duration) func(*buyer, *node) {
	return func(b *buyer, n *node) { b.after(after, func() { b.breakDown(n, "never registered") }) }
}

// firstServesLate spares the first machine, which serves after an hour.
func firstServesLate(fate func(*buyer, *node)) func(*buyer, *node) {
	return func(b *buyer, n *node) {
		if len(b.bought) == 1 {
			b.after(time.Hour, func() { b.serve(n) })
			return
		}
		fate(b, n)
	}
}

// TestLastingFaults makes something fail for a day, and counts machines.
func TestLastingFaults(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T) *buyer
		// The most machines: in the first hour, in the day, in the day after the first round, and the failed ones among these. Zero: not
		// checked.
		hour, all, after, failed int
		// forgets: a new process starts counting pods thrown off machines that served at zero.
		forgets bool
	}{
		{
			name: "one pod that is thrown off after a second",
			make: func(t *testing.T) *buyer { return newBuyer(t, thrown(time.Second)).wants(1, 1) },
			hour: 4, all: 9,
		},
		{
			name:  "a hundred pods, a machine each, whose plugin never comes",
			make:  func(t *testing.T) *buyer { return newBuyer(t, thrown(32*time.Minute)).wants(1, 100) },
			after: 8,
		},
		{
			name: "the same, and they fail over two minutes",
			make: func(t *testing.T) *buyer {
				b := newBuyer(t, func(b *buyer, n *node) {
					thrown(32*time.Minute+time.Duration(len(b.bought))*1200*time.Millisecond)(b, n)
				}).wants(1, 100)
				b.patience = 2 * time.Minute
				return b
			},
			after: 8,
		},
		{
			name:  "fifty workloads of one pod on a machine each",
			make:  func(t *testing.T) *buyer { return newBuyer(t, thrown(time.Second)).wants(50, 1) },
			after: 12,
		},
		{
			name: "fifty workloads of one pod, thrown off one after the other",
			make: func(t *testing.T) *buyer {
				return newBuyer(t, func(b *buyer, n *node) { thrown(time.Duration(len(b.bought))*time.Second)(b, n) }).wants(50, 1)
			},
			after: 12,
		},
		{
			name: "fifty workloads of one pod, all on one machine",
			make: func(t *testing.T) *buyer {
				b := newBuyer(t, thrown(time.Second)).wants(50, 1)
				b.perNode = 50
				return b
			},
			hour: 4, all: 9, after: 12,
		},
		{
			name:  "fifty workloads of one pod, one of which is undecided for an hour and then does work",
			make:  func(t *testing.T) *buyer { return newBuyer(t, firstServesLate(thrown(time.Second))).wants(50, 1) },
			after: 12,
		},
		{
			name:  "the same, two minutes after they are bought",
			make:  func(t *testing.T) *buyer { return newBuyer(t, firstServesLate(thrown(2*time.Minute))).wants(50, 1) },
			after: 12,
		},
		{
			name: "a pod that is thrown off a minute after its machine has done work",
			make: func(t *testing.T) *buyer {
				return newBuyer(t, servedThenThrown(2*time.Minute, 3*time.Minute)).wants(1, 1)
			},
			all: 12, forgets: true,
		},
		{
			name: "fifty such pods of as many workloads",
			make: func(t *testing.T) *buyer {
				return newBuyer(t, servedThenThrown(2*time.Minute, 3*time.Minute)).wants(50, 1)
			},
			all: 50 * 12, forgets: true,
		},
		{
			name: "an image that never registers, for two hundred workloads, three zones, two pools",
			make: func(t *testing.T) *buyer {
				return newBuyer(t, broken(15*time.Minute), twoPoolsThreeZones()...).wants(200, 1)
			},
			after: 12,
		},
		{
			name: "the same, not more than twenty at first, and they fail over a minute",
			make: func(t *testing.T) *buyer {
				b := newBuyer(t, func(b *buyer, n *node) {
					broken(15*time.Minute+time.Duration(len(b.bought)%20)*3*time.Second)(b, n)
				}, twoPoolsThreeZones()...).wants(200, 1)
				b.newImage = 20
				return b
			},
			after: 12,
		},
		{
			name: "one of the zones never comes up",
			make: func(t *testing.T) *buyer {
				b := newBuyer(t, func(b *buyer, n *node) {
					if n.zone == "x" {
						broken(15*time.Minute)(b, n)
						return
					}
					b.after(4*time.Minute, func() { b.serve(n) })
				}, place{"a", "x"}, place{"a", "y"}).wants(20, 1)
				b.each(20*time.Minute, func() { b.wants(1, 1) })
				return b
			},
			after: 20 + 72 + 8, failed: 8,
		},
	}
	for _, test := range tests {
		for _, restarts := range []time.Duration{0, 7 * time.Minute, 90 * time.Minute} {
			if test.forgets && restarts > 0 && restarts < thrownWindow {
				continue
			}
			name := test.name
			if restarts > 0 {
				name += fmt.Sprintf(", a new process each %s", restarts)
			}
			t.Run(name, func(t *testing.T) {
				b := test.make(t)
				if restarts > 0 {
					b.each(restarts, b.restart)
				}
				b.run(day)
				hour, _ := b.count(time.Hour)
				all, after := b.count(day)
				failed := 0
				for _, n := range b.bought {
					if n.failed && n.at.After(epoch) {
						failed++
					}
				}
				t.Logf("%d machines in the first hour, %d in the day, %d after the first round, of which %d failed", hour, all, after, failed)
				for what, n := range map[string][2]int{"hour": {hour, test.hour}, "day": {all, test.all}, "after": {after, test.after}, "failed": {failed, test.failed}} {
					if n[1] > 0 && n[0] > n[1] {
						t.Errorf("%s: %d machines, want at most %d", what, n[0], n[1])
					}
				}
			})
		}
	}
}

func twoPoolsThreeZones() (out []place) {
	for _, pool := range []string{"a", "b"} {
		for _, zone := range []string{"x", "y", "z"} {
			out = append(out, place{pool, zone})
		}
	}
	return out
}

func servedThenThrown(served, off time.Duration) func(*buyer, *node) {
	return func(b *buyer, n *node) {
		b.after(served, func() { b.serve(n) })
		b.after(off, func() { b.throwOff(n, "taint agent", false) })
	}
}

// TestMended removes the cause of failures, with a change that is reported to the guard. Two boots and four minutes later all waiting
// pods have machines.
func TestMended(t *testing.T) {
	const boot = time.Minute
	faults := map[string]struct {
		fault           func(*buyer, *node)
		workloads, pods int
	}{
		"pods are thrown off at once":                             {thrown(time.Second), 50, 2},
		"pods of one workload are thrown off at once":             {thrown(time.Second), 1, 20},
		"machines are undecided for an hour":                      {thrown(time.Hour), 50, 2},
		"machines never register":                                 {broken(15 * time.Minute), 100, 2},
		"pods are thrown off after their machines have done work": {servedThenThrown(2*time.Minute, 3*time.Minute), 20, 2},
	}
	for name, fault := range faults {
		for _, at := range []time.Duration{time.Minute, 10 * time.Minute, 16 * time.Minute, 40 * time.Minute, 5 * time.Hour, 12 * time.Hour} {
			for _, forced := range []bool{false, true} {
				mended := false
				b := newBuyer(t, func(b *buyer, n *node) {
					if mended {
						b.after(boot+2*time.Minute, func() { b.serve(n) })
					} else {
						fault.fault(b, n)
					}
				}, twoPoolsThreeZones()...).wants(fault.workloads, fault.pods)
				b.after(at, func() {
					mended = true
					b.g.Changed(func(Key) bool { return true }, forced, b.now)
				})
				b.run(at + 2*boot + 4*time.Minute)
				if len(b.waiting) > 0 {
					t.Errorf("%s, mended after %s (forced: %t): %d pods still wait; first %s", name, at, forced, len(b.waiting), b.waiting[0].workload)
				}
			}
		}
	}
}

// TestFewMachinesFail: one in twenty machines never registers, in rounds of different sizes. The others serve four minutes after they
// were bought.
func TestFewMachinesFail(t *testing.T) {
	opened := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		failed, size := map[string]int{}, map[string]int{} // by round
		b := newBuyer(t, func(b *buyer, n *node) {
			size[n.round]++
			if r.IntN(20) > 0 {
				b.after(4*time.Minute, func() {
					b.serve(n)
					for _, k := range n.probes {
						if o := b.g.breakers[k]; o != nil && o.Open() {
							t.Errorf("seed %d: %s is open after its probe has done work", seed, k)
						}
					}
				})
				return
			}
			b.after(15*time.Minute, func() {
				failed[n.round]++
				before := b.g.covering(MachineKey("c", "i", n.zone))
				b.breakDown(n, "never registered")
				if b.g.covering(MachineKey("c", "i", n.zone)) == nil || before != nil {
					return
				}
				opened++
				if failed[n.round] < size[n.round] {
					t.Errorf("seed %d: a breaker opened after %d of %d machines of a round, although the others did work", seed, failed[n.round], size[n.round])
				}
			})
		})
		for i := range 1 + r.IntN(5) {
			b.after(time.Duration(i)*7*time.Minute, func() { b.wants(1, 1+r.IntN(60)) })
		}
		b.run(3 * time.Hour)
		if len(b.waiting) > 0 {
			t.Errorf("seed %d: %d pods still wait", seed, len(b.waiting))
		}
	}
	if opened == 0 {
		t.Error("no machine was alone in its round and failed: this tests nothing")
	}
}
