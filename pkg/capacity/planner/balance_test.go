package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// oneType returns a pool of one on-demand instance type that holds one of the test's pods, with these prices in the zones a, b and c.
func oneType(balance float64, a, b, c float64) *capacity.Pool {
	p := testPool("default")
	typ := testType("m.2", "amd64", 2, 8, 0.1)
	for i := range typ.Offers {
		price := map[string]float64{"a": a, "b": b, "c": c}[typ.Offers[i].Zone]
		if typ.Offers[i].CapacityType == capacity.CapacityTypeSpot {
			price /= 3
		}
		typ.Offers[i].Price = price
	}
	p.Types, p.ZoneBalance = []*capacity.InstanceType{typ}, &balance
	return p
}

// inZones counts the plan's new nodes by zone; "" counts those that may be in several.
func inZones(p *capacity.Plan) map[string]int {
	out := map[string]int{}
	for _, n := range p.Nodes {
		out[n.Labels[capacity.LabelZone]]++
	}
	return out
}

// ofPool makes the nodes those of the pool default.
func ofPool(nodes ...*capacity.Node) []*capacity.Node {
	for _, n := range nodes {
		n.Labels[capacity.LabelNodePool] = "default"
		n.Free = capacity.Resources{}
	}
	return nodes
}

func TestZonesAreBalanced(t *testing.T) {
	pod := asking("web", "cpu=1500m memory=1Gi")
	inA := on(capacity.LabelZone, "a")
	spot := func(p *capacity.Pool) {
		p.Requirements = capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, "spot"))
	}
	unavailable := func(zone string) func(*capacity.Pool) {
		return func(p *capacity.Pool) {
			for i := range p.Types[0].Offers {
				p.Types[0].Offers[i].Available = p.Types[0].Offers[i].Available && p.Types[0].Offers[i].Zone != zone
			}
		}
	}
	node := func(zone string, change ...func(*capacity.Node)) *capacity.Node {
		n := testNode(fmt.Sprintf("n-%d", rand.Int()), zone, 0, 0)
		for _, f := range change {
			f(n)
		}
		return n
	}
	for name, tc := range map[string]struct {
		pool   *capacity.Pool
		change []func(*capacity.Pool)
		nodes  []*capacity.Node
		demand []capacity.Demand
		want   map[string]int
	}{
		"prices within the tolerance":       {pool: oneType(.1, 1, 1.02, 1.05), want: map[string]int{"a": 10, "b": 10, "c": 10}},
		"one zone is too dear":              {pool: oneType(.1, 1, 1.02, 1.5), want: map[string]int{"a": 15, "b": 15}},
		"exactly the tolerance":             {pool: oneType(.1, 1, 1, 1.1), want: map[string]int{"a": 10, "b": 10, "c": 10}},
		"only one zone is cheap enough":     {pool: oneType(.1, 1, 1.2, 1.2), want: map[string]int{"": 30}},
		"no tolerance":                      {pool: oneType(0, 1, 1, 1.01), want: map[string]int{"a": 15, "b": 15}},
		"no balance":                        {pool: oneType(0, 1, 1, 1), change: []func(*capacity.Pool){func(p *capacity.Pool) { p.ZoneBalance = nil }}, want: map[string]int{"": 30}},
		"one zone has no capacity":          {pool: oneType(.1, 1, 1, 1), change: []func(*capacity.Pool){unavailable("a")}, want: map[string]int{"b": 15, "c": 15}},
		"spot":                              {pool: oneType(.1, 1, 1.02, 1.05), change: []func(*capacity.Pool){spot}, want: map[string]int{"a": 10, "b": 10, "c": 10}},
		"there are nodes":                   {pool: oneType(.1, 1, 1, 1), nodes: ofPool(node("a"), node("a"), node("b")), want: map[string]int{"a": 9, "b": 10, "c": 11}},
		"they are cordoned":                 {pool: oneType(.1, 1, 1, 1), nodes: ofPool(node("a", func(n *capacity.Node) { n.Unschedulable = true }), node("a"), node("b")), want: map[string]int{"a": 9, "b": 10, "c": 11}},
		"they are being launched":           {pool: oneType(.1, 1, 1, 1), nodes: ofPool(node("a", inFlight), node("a", inFlight, closed), node("b", inFlight)), want: map[string]int{"a": 9, "b": 10, "c": 11}},
		"their zones aren't known":          {pool: oneType(.1, 1, 1, 1), nodes: ofPool(node("a", inFlight, zoneless), node("a", inFlight, zoneless)), want: map[string]int{"a": 10, "b": 10, "c": 10}},
		"they are leaving":                  {pool: oneType(.1, 1, 1, 1), nodes: ofPool(node("a", closed), node("a", disrupted)), want: map[string]int{"a": 10, "b": 10, "c": 10}},
		"they are another pool's":           {pool: oneType(.1, 1, 1, 1), nodes: []*capacity.Node{node("a"), node("a")}, want: map[string]int{"a": 10, "b": 10, "c": 10}},
		"pods want a zone":                  {pool: oneType(.1, 1, 1, 1), demand: []capacity.Demand{demandOf(t, 18, pod), demandOf(t, 12, asking("db", "cpu=1500m memory=1Gi", inA))}, want: map[string]int{"a": 12, "b": 9, "c": 9}},
		"pods prefer a zone":                {pool: oneType(.1, 1, 1, 1), demand: []capacity.Demand{demandOf(t, 30, asking("db", "cpu=1500m memory=1Gi", preferring(capacity.LabelZone, "b")))}, want: map[string]int{"b": 30}},
		"few zones choose before many":      {pool: oneType(.1, 1, 1, 1), demand: []capacity.Demand{demandOf(t, 4, pod), demandOf(t, 2, asking("db", "cpu=1500m memory=1Gi", notIn("c")))}, want: map[string]int{"a": 2, "b": 2, "c": 2}},
		"pods spread over zones":            {pool: oneType(.1, 1, 1, 1), demand: []capacity.Demand{demandOf(t, 15, pod), demandOf(t, 15, asking("db", "cpu=1500m memory=1Gi", withSpread(capacity.LabelZone)))}, want: map[string]int{"a": 10, "b": 10, "c": 10}},
		"the pool wants values of zones":    {pool: oneType(.1, 1, 1, 1), change: []func(*capacity.Pool){minValues(capacity.LabelZone, 2)}, want: map[string]int{"": 30}},
		"the pool wants values, zones have": {pool: oneType(.1, 1, 1, 1), change: []func(*capacity.Pool){minValues(corev1.LabelInstanceTypeStable, 1)}, want: map[string]int{"a": 10, "b": 10, "c": 10}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range tc.change {
				f(tc.pool)
			}
			if tc.demand == nil {
				tc.demand = []capacity.Demand{demandOf(t, 30, pod)}
			}
			v := &capacity.View{Pools: []*capacity.Pool{tc.pool}, Nodes: tc.nodes, Demand: tc.demand}
			p := Decide(v, capacity.Options{})
			if diff := cmp.Diff(tc.want, inZones(p)); diff != "" {
				t.Errorf("new nodes by zone (-want +got):\n%s", diff)
			}
			if err := check(v, p, capacity.Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func inFlight(n *capacity.Node) { n.InFlight = true }
func closed(n *capacity.Node)   { n.Closed = true }
func zoneless(n *capacity.Node) { delete(n.Labels, capacity.LabelZone) }
func disrupted(n *capacity.Node) {
	n.Taints = []corev1.Taint{{Key: capacity.TaintDisrupted, Effect: corev1.TaintEffectNoSchedule}}
}

// notIn keeps a pod out of a zone.
func notIn(zone string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: capacity.LabelZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{zone}}}}}}}}
	}
}

// minValues has a pool's nodes have so many values of a label to choose from.
func minValues(key string, n int) func(*capacity.Pool) {
	return func(p *capacity.Pool) {
		r, _ := capacity.NewRequirement(key, capacity.Exists)
		r.MinValues = n
		p.Requirements = p.Requirements.And(r)
	}
}

// A spot node stays in several zones if the emptiest would leave it too few types to choose from.
func TestSpotNodesKeepTypesToChooseFrom(t *testing.T) {
	for name, tc := range map[string]struct {
		missing int // types that zone c doesn't have, of 40
		want    map[string]int
	}{
		"all":            {0, map[string]int{"a": 10, "b": 10, "c": 10}},
		"15 are left":    {25, map[string]int{"a": 10, "b": 10, "c": 10}},
		"14 are left":    {26, map[string]int{"a": 15, "b": 15}},
		"only one is it": {39, map[string]int{"a": 15, "b": 15}},
	} {
		t.Run(name, func(t *testing.T) {
			balance := .1
			p := testPool("default")
			p.ZoneBalance, p.Types = &balance, nil
			p.Requirements = capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, "spot"))
			for i := range 40 {
				typ := testType(fmt.Sprintf("m%d.2", i), "amd64", 2, 8, 0.1)
				for j := range typ.Offers {
					typ.Offers[j].Available = typ.Offers[j].Zone != "c" || i >= tc.missing
				}
				p.Types = append(p.Types, typ)
			}
			plan := Decide(&capacity.View{Pools: []*capacity.Pool{p}, Demand: []capacity.Demand{demandOf(t, 30, asking("web", "cpu=1500m memory=1Gi"))}}, capacity.Options{})
			if diff := cmp.Diff(tc.want, inZones(plan)); diff != "" {
				t.Errorf("new nodes by zone (-want +got):\n%s", diff)
			}
		})
	}
}

// A node for a capacity reservation stays there, and counts in its zone.
func TestReservedCapacityIsNotBalancedButCounts(t *testing.T) {
	p := oneType(.1, 1, 1, 1)
	p.Types[0].Offers = append(p.Types[0].Offers, capacity.Offer{Zone: "b", CapacityType: capacity.CapacityTypeReserved, Price: 1e-7, Available: true, ReservationID: "cr-1", Remaining: 4})
	p.Requirements = capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, "on-demand", "reserved"))
	plan := Decide(&capacity.View{Pools: []*capacity.Pool{p}, Demand: []capacity.Demand{demandOf(t, 12, asking("web", "cpu=1500m memory=1Gi"))}}, capacity.Options{})
	if diff := cmp.Diff(map[string]int{"a": 4, "b": 4, "c": 4}, inZones(plan)); diff != "" {
		t.Errorf("new nodes by zone (-want +got):\n%s", diff)
	}
	reserved := 0
	for _, n := range plan.Nodes {
		if n.CapacityType == capacity.CapacityTypeReserved {
			reserved++
		}
	}
	if reserved != 4 {
		t.Errorf("%d nodes in the capacity reservation, want 4", reserved)
	}
}

// The price of a plan is that of the zones that were chosen, and its lower bound stays one.
func TestBalanceIsInThePrice(t *testing.T) {
	v := &capacity.View{Pools: []*capacity.Pool{oneType(.1, 1, 1, 1.1)}, Demand: []capacity.Demand{demandOf(t, 30, asking("web", "cpu=1500m memory=1Gi"))}}
	p := Decide(v, capacity.Options{Effort: 1000})
	if p.CostPerHour < 30.99 || p.CostPerHour > 31.01 {
		t.Errorf("costs %v, want 31", p.CostPerHour)
	}
	if p.LowerBound < 29.99 || p.LowerBound > 30.01 {
		t.Errorf("lower bound %v, want 30", p.LowerBound)
	}
}

// balanced makes some of a random world's pools balance zones.
func (d dice) balanced(v *capacity.View) *capacity.View {
	for _, p := range v.Pools {
		if !d.one(4) {
			p.ZoneBalance = new(pick(d, 0, .1, .5, 1))
		}
		for _, n := range v.Nodes {
			if d.one(3) {
				n.Labels[capacity.LabelNodePool] = p.Name
			}
		}
	}
	return v
}

// Whatever pods depend on zones, plans of pools that balance zones are legal, and no pod goes without a node because of it.
func TestRandomWorldsWithBalance(t *testing.T) {
	narrowed := 0
	for seed := range uint64(150) {
		narrowed += checkBalanced(t, seed)
		if t.Failed() {
			return
		}
	}
	if narrowed < 30 {
		t.Errorf("only %d nodes were narrowed to a zone", narrowed)
	}
}

func checkBalanced(t testing.TB, seed uint64) (narrowed int) {
	world := func() *capacity.View {
		return dice{rand.New(rand.NewPCG(seed, 5))}.balanced(dice{rand.New(rand.NewPCG(seed, 4))}.world(t))
	}
	v, without := world(), world()
	for _, p := range without.Pools {
		p.ZoneBalance = nil
	}
	opts := capacity.Options{Effort: int(seed%3) * 1000}
	p, plain := Decide(v, opts), Decide(without, opts)
	for _, err := range []error{check(v, p, opts), checkNarrowed(p)} {
		if err != nil {
			t.Errorf("world %d: %v\n%s", seed, err, summary(p))
		}
	}
	if a, b := (outcome{Plan: p}).refused(), (outcome{Plan: plain}).refused(); a > b {
		t.Errorf("world %d: %d pods refused, %d without balance\n%s\nwithout:\n%s", seed, a, b, summary(p), summary(plain))
	}
	if diff := cmp.Diff(summary(p), summary(Decide(world(), opts))); diff != "" {
		t.Errorf("world %d is planned differently again (-first +second):\n%s", seed, diff)
	}
	return max(0, inZones(plain)[""]-inZones(p)[""])
}

// checkNarrowed checks that the offerings of a node with a zone are in that zone.
func checkNarrowed(p *capacity.Plan) error {
	for _, n := range p.Nodes {
		zone, ok := n.Labels[capacity.LabelZone]
		for _, o := range n.Offers {
			if ok && o.Offer.Zone != zone {
				return fmt.Errorf("%s has the zone %s and an offering in %s", n.ID, zone, o.Offer.Zone)
			}
		}
	}
	return nil
}

// An explanation says why a node is in a zone that isn't the cheapest.
func TestBalanceExplains(t *testing.T) {
	v := &capacity.View{Pools: []*capacity.Pool{oneType(.1, 1, 1, 1.1)}, Nodes: ofPool(testNode("n1", "a", 0, 0), testNode("n2", "b", 0, 0)), Demand: []capacity.Demand{demandOf(t, 1, asking("web", "cpu=1500m memory=1Gi"))}}
	p := Decide(v, capacity.Options{Explain: []types.UID{"web-0"}})
	want := "zone c was chosen because the pool has the fewest nodes there (annotation dovetail.sh/zone-balance); in a the node would cost 1.0000 $/h"
	if !slices.Contains(p.Explanations[0].Lines, want) {
		t.Errorf("no line %q in\n%q", want, p.Explanations[0].Lines)
	}
}

func FuzzBalance(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkBalanced(t, seed) })
}
