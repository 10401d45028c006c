package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

var mostAllocated = Scoring{Strategy: schedulerapi.MostAllocated, FitWeight: 1, BalancedWeight: 1}

// threeNodes returns a cluster of nodes of one type: an empty one, and one with two and one with four pods of class 1; and a class that has no pods.
func threeNodes(tb testing.TB) (c *cluster.Cluster, class int) {
	tb.Helper()
	w, err := cluster.New(cluster.Deployments(), catalog.Builtin(), 1, false)
	if err != nil {
		tb.Fatal(err)
	}
	largest := slices.MaxFunc(w.Offers, func(a, b int) int { return int(w.Types[a].Room[0] - w.Types[b].Room[0]) })
	c = &cluster.Cluster{World: w}
	w.Classes[0].Need, w.Classes[1].Need = cluster.Vector{500, 2048, 1}, cluster.Vector{1000, 2048, 1}
	for _, pods := range []int{0, 2, 4} {
		c.Add(largest, []cluster.Share{{Class: 1, Count: pods}})
	}
	return c, 0
}

func scheduler(tb testing.TB, w *cluster.World, s Scoring, rank func(string) int64) *Scheduler {
	tb.Helper()
	out, err := New(w, s, rank)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(out.Close)
	return out
}

// Pods go where the scores say, not to cordoned nodes, and nowhere if no node has room.
func TestPlace(t *testing.T) {
	none := func(*cluster.Node) bool { return false }
	full := func(*cluster.Node) bool { return true }
	for _, tc := range []struct {
		name     string
		scoring  Scoring
		cordoned func(*cluster.Node) bool
		need     int64 // milli-CPU
		want     int   // the node's number; -1: none
	}{
		{name: "LeastAllocated takes the emptiest", scoring: Upstream, cordoned: none, need: 500, want: 0},
		{name: "MostAllocated takes the fullest", scoring: mostAllocated, cordoned: none, need: 500, want: 2},
		{name: "which isn't cordoned", scoring: mostAllocated, cordoned: func(n *cluster.Node) bool { return n.ID == 2 }, need: 500, want: 1},
		{name: "the rank decides", scoring: Scoring{Strategy: schedulerapi.LeastAllocated, FitWeight: 1, BalancedWeight: 1, Kept: 100}, cordoned: none, need: 500, want: 1},
		{name: "all are cordoned", scoring: Upstream, cordoned: full, need: 500, want: -1},
		{name: "no room", scoring: Upstream, cordoned: none, need: 1_000_000, want: -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, class := threeNodes(t)
			c.World.Classes[class].Need[0] = tc.need
			s := scheduler(t, c.World, tc.scoring, func(node string) int64 { return map[string]int64{"node-1": 100}[node] })
			if err := s.Sync(c, tc.cordoned); err != nil {
				t.Fatal(err)
			}
			n, err := s.Place(class)
			if err != nil {
				t.Fatal(err)
			}
			got := -1
			if n != nil {
				got = n.ID
			}
			if got != tc.want {
				t.Errorf("placed on %d, want %d", got, tc.want)
			}
		})
	}
}

// Whatever happens to the cluster, the scheduler's cache has the same nodes and pods after Sync.
func TestSync(t *testing.T) {
	c, class := threeNodes(t)
	s, random := scheduler(t, c.World, mostAllocated, nil), rand.New(rand.NewPCG(1, 1))
	for round := range 50 {
		switch n := c.Nodes[random.IntN(len(c.Nodes))]; random.IntN(4) {
		case 0:
			c.Add(n.Type, []cluster.Share{{Class: random.IntN(4), Count: 1}})
		case 1:
			if len(c.Nodes) > 1 {
				n.Gone = true
				c.Sweep()
			}
		case 2:
			if len(n.Pods) > 0 {
				c.Put(n, n.Pods[0].Class, -1)
			}
		case 3:
			c.Put(n, class, 1)
		}
		if err := s.Sync(c, func(n *cluster.Node) bool { return (n.ID+round)%3 == 0 }); err != nil {
			t.Fatal(err)
		}
		dump, pods := s.sched.Cache.Dump(), 0
		for name, info := range dump.Nodes {
			pods += len(info.GetPods())
			if at := s.nodes[name]; at == nil || info.Node().Spec.Unschedulable != ((at.of.ID+round)%3 == 0) || len(info.GetPods()) != at.of.Count {
				t.Fatalf("round %d: %s has %d pods, unschedulable: %v", round, name, len(info.GetPods()), info.Node().Spec.Unschedulable)
			}
		}
		if len(dump.Nodes) != len(c.Nodes) || pods != c.PodCount() {
			t.Fatalf("round %d: %d nodes and %d pods, want %d and %d", round, len(dump.Nodes), pods, len(c.Nodes), c.PodCount())
		}
	}
}

// BenchmarkPlace compares the CPU time of scheduling cycles with MostAllocated, as shipped, with that of upstream's scores: pairs
// of turns, A/B, B/A, each of 300 pods on the same half-full cluster. ratio is the median of the pairs' ratios; least and most
// are the quartiles.
func BenchmarkPlace(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { comparePlaces(b, nodes) })
	}
}

func comparePlaces(b *testing.B, nodes int) {
	b.Helper()
	w, err := cluster.New(cluster.Deployments(), catalog.Builtin(), 1, false)
	if err != nil {
		b.Fatal(err)
	}
	c, random := &cluster.Cluster{World: w}, rand.New(rand.NewPCG(1, 2))
	for range nodes {
		n := c.Add(w.Offers[random.IntN(len(w.Offers))], nil)
		for range 20 {
			class, room := random.IntN(len(w.Classes)), w.Types[n.Type].Room[0]
			if need := w.Classes[class].Need; n.Free.Holds(need) && n.Free[0]-need[0] > room/3 {
				c.Put(n, class, 1)
			}
		}
	}
	both := []*Scheduler{scheduler(b, w, mostAllocated, nil), scheduler(b, w, Upstream, nil)}
	var ratios []float64
	var perPod time.Duration
	for b.Loop() {
		var used [2]time.Duration
		for _, at := range [][]int{{0, 1}, {1, 0}}[len(ratios)%2] {
			if err := both[at].Sync(c, func(*cluster.Node) bool { return false }); err != nil {
				b.Fatal(err)
			}
			classes, begun := rand.New(rand.NewPCG(uint64(len(ratios)), 3)), cpuTime(b)
			for range 300 {
				if _, err := both[at].Place(classes.IntN(len(w.Classes))); err != nil {
					b.Fatal(err)
				}
			}
			used[at] = cpuTime(b) - begun
		}
		ratios, perPod = append(ratios, used[0].Seconds()/used[1].Seconds()), perPod+used[0]/300
	}
	slices.Sort(ratios)
	b.ReportMetric(float64((perPod / time.Duration(len(ratios))).Microseconds()), "us/pod")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(ratios[len(ratios)/4], "least")
	b.ReportMetric(ratios[len(ratios)*3/4], "most")
}

// cpuTime returns what this process has used.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
