package emulation

import (
	"bufio"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

var whole = flag.Bool("study.whole", false, "all clusters of the study, not only the first two (make repack)")

// row is what the study measured of one of the cuts: cost over the bound and pods moved, with the default policy and with Balanced.
type row struct {
	nodes           int
	cost            float64
	moved           int
	balanced        float64
	movedByBalanced int
}

// study is in the order of cluster.Cuts.
var study = []row{
	{514, 1.037, 1206, 1.047, 756}, {500, 1.045, 1169, 1.060, 834}, {508, 1.069, 1269, 1.090, 894},
	{2060, 1.042, 4935, 1.058, 3247}, {2053, 1.051, 5034, 1.070, 3511}, {2046, 1.079, 5226, 1.102, 3806},
	{2035, 1.078, 5280, 1.100, 4064}, {2021, 1.101, 4844, 1.122, 4005}, {2004, 1.093, 5177, 1.123, 4056},
	{5238, 1.045, 11803, 1.059, 8004}, {5161, 1.084, 12397, 1.107, 9218}, {5202, 1.069, 11938, 1.093, 8812},
}

// packed returns the cluster that the cut begins with, as the planner of the study's time packed it. Each line of its file is a number of
// equal nodes, their type, and the pods on each of them by class. It is recorded because what Karpenter moves depends on how the pods were
// packed: with today's planner a change of the planner would look like one of the emulation.
func packed(t *testing.T, cut cluster.Cut) *cluster.Cluster {
	t.Helper()
	w, err := cluster.New(cluster.Deployments(), catalog.Builtin(), cut.Multiply, false)
	if err != nil {
		t.Fatal(err)
	}
	types, classes := map[string]int{}, map[string]int{}
	for i := range w.Types {
		types[w.Types[i].Name] = i
	}
	for i := range w.Classes {
		classes[w.Classes[i].Name] = i
	}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	f, err := os.Open(fmt.Sprintf("testdata/packed-%v.txt", cut.Multiply))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := &cluster.Cluster{World: w}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		typ, known := types[fields[1]]
		if !known {
			t.Fatalf("%s: no type %s", f.Name(), fields[1])
		}
		var pods []cluster.Share
		for _, field := range fields[2:] {
			name, count, _ := strings.Cut(field, ":")
			class, known := classes[name]
			if !known {
				t.Fatalf("%s: no class %s", f.Name(), name)
			}
			pods = append(pods, cluster.Share{Class: class, Count: number(count)})
		}
		for range number(fields[0]) {
			c.Add(typ, pods)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	want := make([]int, len(w.Classes))
	for i := range want {
		want[i] = w.Classes[i].Count
	}
	if !slices.Equal(c.Counts(), want) || slices.ContainsFunc(c.Nodes, func(n *cluster.Node) bool { return !n.Free.Holds(cluster.Vector{}) }) {
		t.Fatalf("%s: the nodes don't run all pods of the workload, or one is overfull", f.Name())
	}
	return c
}

// TestEmulationAgreesWithTheStudy holds the emulation, on the study's clusters, to what the study measured: 2 % of the cost in each row, and
// 5 % of the pods moved in the mean.
func TestEmulationAgreesWithTheStudy(t *testing.T) {
	const effort = 200_000
	logs, count := 0.0, 0.0
	for i, cut := range cluster.Cuts {
		if !*whole && i == 2 {
			break
		}
		c := packed(t, cut)
		c.Thin(cut.Part, cut.Uniform, 1)
		nodes, bound := len(c.Nodes), c.World.Pack(c.Counts(), effort).Bound
		want := study[i]
		if off := math.Abs(float64(nodes)/float64(want.nodes) - 1); off > .05 {
			t.Errorf("%s: %d nodes, the study had %d", cut.Name(), nodes, want.nodes)
		}
		for _, policy := range []struct {
			balanced bool
			cost     float64
			moved    int
		}{{false, want.cost, want.moved}, {true, want.balanced, want.movedByBalanced}} {
			k := New(c.Clone(), policy.balanced)
			tally := k.Run()
			cost := k.Cluster.Cost() / bound
			t.Logf("%d nodes, %s, balanced %v: cost %.3f of the bound (study %.3f), moved %d (%d), %d commands", nodes, cut.Name(), policy.balanced, cost, policy.cost,
				tally.Moved, policy.moved, tally.Commands)
			if math.Abs(cost/policy.cost-1) > .02 {
				t.Errorf("%d nodes, %s, balanced %v: cost %.3f of the bound, the study had %.3f", nodes, cut.Name(), policy.balanced, cost, policy.cost)
			}
			if !policy.balanced {
				logs += math.Log(float64(tally.Moved) / float64(policy.moved))
				count++
			}
		}
	}
	if off := math.Exp(logs/count) - 1; math.Abs(off) > .05 {
		t.Errorf("%+.1f %% pods moved, compared with the study", 100*off)
	} else {
		t.Logf("%+.1f %% pods moved, compared with the study", 100*off)
	}
}
