package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// leftOf returns the coverage of commitments of which this much is left, in $/h.
func leftOf(commitments []capacity.Commitment, left ...float64) *capacity.Coverage {
	out := &capacity.Coverage{Commitments: commitments, Used: make([]int64, len(commitments))}
	for i := range commitments {
		out.Used[i] = commitments[i].MicroDollars - capacity.MicroDollarsOf(left[i])
	}
	return out
}

func savings(name string, families ...string) capacity.Commitment {
	return capacity.Commitment{Name: name, MicroDollars: 10e6, RateFactor: 0.7, Families: families}
}

// spotView returns a view whose pool allows spot capacity, which costs a third.
func spotView(t *testing.T, n int, pod *corev1.Pod) *capacity.View {
	v := viewOf(t, n, pod)
	v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"))
	return v
}

// coveredOf counts a plan's nodes by capacity type, cheapest type and commitment.
func coveredOf(p *capacity.Plan) map[string]int {
	out := map[string]int{}
	for _, n := range p.Nodes {
		out[fmt.Sprintf("%s %s %s", n.CapacityType, n.Offers[0].Type.Name, n.Covered.Commitment)]++
	}
	return out
}

// A pod of 1,500m needs a c.2, at 0.08 $/h on demand, which uses 0.056 $/h of a commitment.
func TestCommitmentsAreUsedFirst(t *testing.T) {
	for _, tt := range []struct {
		name        string
		commitments []capacity.Commitment
		left        []float64
		change      func(v *capacity.View)
		want        map[string]int
	}{
		{"as far as they go, and then spot", []capacity.Commitment{savings("sp")}, []float64{0.12}, nil, map[string]int{"on-demand c.2 sp": 2, "spot c.2 ": 2}},
		{"to the last micro-dollar", []capacity.Commitment{savings("sp")}, []float64{0.056}, nil, map[string]int{"on-demand c.2 sp": 1, "spot c.2 ": 3}},
		{"too little is left for any node", []capacity.Commitment{savings("sp")}, []float64{0.0559}, nil, map[string]int{"spot c.2 ": 4}},
		{"for the families that it is for", []capacity.Commitment{savings("sp", "m")}, []float64{0.3}, nil, map[string]int{"on-demand m.2 sp": 4}},
		{"that for families first", []capacity.Commitment{savings("for-c", "c"), savings("all")}, []float64{0.12, 0.12}, nil,
			map[string]int{"on-demand c.2 for-c": 2, "on-demand c.2 all": 2}},
		{"not beyond what the pool allows", []capacity.Commitment{savings("sp")}, []float64{9}, func(v *capacity.View) {
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(capacity.ValueIn(capacity.LabelCapacityType, "spot"))
		}, map[string]int{"spot c.2 ": 4}},
		{"not for a price that an overlay has set", []capacity.Commitment{savings("sp")}, []float64{9}, func(v *capacity.View) {
			for _, typ := range v.Pools[0].Types {
				for i := range typ.Offers {
					typ.Offers[i].PriceOverlaid = true
				}
			}
		}, map[string]int{"spot c.2 ": 4}},
		{"not for what is unavailable", []capacity.Commitment{savings("sp", "c")}, []float64{9}, func(v *capacity.View) {
			for _, typ := range v.Pools[0].Types {
				for i := range typ.Offers {
					typ.Offers[i].Available = typ.Offers[i].CapacityType == "spot"
				}
			}
		}, map[string]int{"spot c.2 ": 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := spotView(t, 4, asking("web", "cpu=1500m"))
			if tt.change != nil {
				tt.change(v)
			}
			v.Coverage = leftOf(tt.commitments, tt.left...)
			p := Decide(v, capacity.Options{})
			if err := check(v, p, capacity.Options{}); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, coveredOf(p)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, n := range p.Nodes {
				if n.Covered.Commitment != "" && p.LowerBound != 0 {
					t.Errorf("the lower bound %v is compared with list prices", p.LowerBound)
				}
			}
		})
	}
}

// What is bought is plain on-demand capacity at list price: neither labels nor offerings tell of the commitment.
func TestCoveredNodesArePlainOnDemand(t *testing.T) {
	v := viewOf(t, 1, asking("web", "cpu=1500m"))
	plain := Decide(v, capacity.Options{})
	v.Coverage = leftOf([]capacity.Commitment{savings("sp")}, 9)
	covered := Decide(v, capacity.Options{})
	a, b := *plain.Nodes[0], *covered.Nodes[0]
	if b.Covered.Commitment != "sp" || b.Covered.Use <= 0 {
		t.Fatalf("%+v", b.Covered)
	}
	if a.Pool != b.Pool {
		t.Error("another pool")
	}
	if b.Filled != 0 {
		t.Errorf("it is filled by %v of a price that is paid for already", b.Filled)
	}
	b.Covered, a.Pool, b.Pool, a.Filled = capacity.PlannedUse{}, nil, nil, 0
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("(-plain +covered)\n%s", diff)
	}
	if plain.CostPerHour != covered.CostPerHour {
		t.Errorf("it costs %v at list price, and %v plainly", covered.CostPerHour, plain.CostPerHour)
	}
}

// A node is bought without its commitment if that can't pay for as many values as the pool's minValues ask for; nothing is refused because of it.
func TestMinValuesComeBeforeCommitments(t *testing.T) {
	for _, relax := range []bool{false, true} {
		v := families(viewOf(t, 3, asking("web", "cpu=1500m")), 3)
		v.Coverage = leftOf([]capacity.Commitment{savings("sp", "c")}, 9)
		p := Decide(v, capacity.Options{RelaxMinValues: relax})
		if err := check(v, p, capacity.Options{}); err != nil {
			t.Error(err)
		}
		if len(p.Refused) > 0 || len(p.Nodes) == 0 || p.Nodes[0].Covered.Commitment != "" || p.Nodes[0].MinValuesRelaxed {
			t.Errorf("refused %v, nodes %v", p.Refused, coveredOf(p))
		}
	}
	v := families(viewOf(t, 1, asking("web", "cpu=1500m")), 3) // what is left is enough for the cheapest, not for all of three families
	v.Coverage = leftOf([]capacity.Commitment{savings("sp")}, 0.057)
	if p := Decide(v, capacity.Options{}); len(p.Refused) > 0 || len(p.Nodes) != 1 || p.Nodes[0].Covered.Commitment != "" {
		t.Errorf("refused %v, nodes %v", p.Refused, coveredOf(p))
	}
}

// A node that others must join may become larger than what is left of the commitment.
func TestACoveredNodeGrowsBeyondItsCommitment(t *testing.T) {
	v := viewOf(t, 1, asking("web", "cpu=1500m"))
	v.Demand = append(v.Demand, demandOf(t, 3, asking("side", "cpu=1500m", near("web", capacity.LabelHostname))))
	v.Coverage = leftOf([]capacity.Commitment{savings("sp")}, 0.06)
	p := Decide(v, capacity.Options{})
	if err := check(v, p, capacity.Options{}); err != nil {
		t.Error(err)
	}
	if len(p.Refused) > 0 {
		t.Errorf("%s\n%s", p.Refused[0].Message, summary(p))
	}
}

// checkCommitted checks that a plan uses no more of a commitment than is left, counting each node with the most that it may use.
func checkCommitted(v *capacity.View, p *capacity.Plan) error {
	sums := make([]int64, len(v.Coverage.Commitments))
	for _, n := range p.Nodes {
		if n.Covered.Commitment == "" {
			continue
		}
		i := slices.IndexFunc(v.Coverage.Commitments, func(m capacity.Commitment) bool { return m.Name == n.Covered.Commitment })
		most := int64(0)
		for _, o := range n.Offers {
			use, ok := v.Coverage.Commitments[i].Use(o.Type.Name, &o.Offer)
			if !ok {
				return fmt.Errorf("%s may become %v, which %s can't pay for", n.ID, o.Key(), n.Covered.Commitment)
			}
			most = max(most, use)
		}
		if most != n.Covered.Use {
			return fmt.Errorf("%s counts %d, and may use %d", n.ID, n.Covered.Use, most)
		}
		sums[i] += most
	}
	for i := range sums {
		if sums[i] > v.Coverage.Left(i) {
			return fmt.Errorf("%d of %s used, %d were left", sums[i], v.Coverage.Commitments[i].Name, v.Coverage.Left(i))
		}
	}
	return nil
}

func TestCommitmentsAreNeverOverused(t *testing.T) {
	covered := 0
	for seed := range uint64(80) {
		v := dice{rand.New(rand.NewPCG(seed, 1))}.world(t)
		d := dice{rand.New(rand.NewPCG(seed, 3))}
		opts := capacity.Options{Effort: int(seed%3) * 1000}
		without := Decide(v, opts)
		all := []capacity.Commitment{savings("sp-1", "c", "r"), savings("sp-2")}[d.IntN(2):]
		var left, none []float64
		for range all {
			left, none = append(left, 2*d.Float64()), append(none, 0)
		}
		memory := New()
		v.Coverage = leftOf(all, none...)
		if diff := cmp.Diff(summary(without), summary(memory.Plan(v, opts))); diff != "" {
			t.Errorf("world %d: with commitments that are used up (-without +with)\n%s", seed, diff)
		}
		for part := range 3 { // with less and less left, which a catalog that is kept has to notice
			v.Coverage = leftOf(all, left...)
			p := memory.Plan(v, opts)
			for _, err := range []error{check(v, p, opts), checkNotRefusedInVain(v, p), checkCommitted(v, p)} {
				if err != nil {
					t.Errorf("world %d, part %d: %v\n%s", seed, part, err, summary(p))
				}
			}
			for _, n := range p.Nodes {
				if n.Covered.Commitment != "" {
					covered++
				}
			}
			for i := range left {
				left[i] /= 4
			}
		}
	}
	if covered < 60 {
		t.Errorf("only %d nodes are covered in all worlds", covered)
	}
}

func BenchmarkPlanCommitments(b *testing.B) {
	for _, left := range []float64{-1, 0, 5, 50} {
		b.Run(fmt.Sprintf("left=%v", left), func(b *testing.B) {
			v := &capacity.View{Pools: []*capacity.Pool{benchPool()}, Demand: manyDemand(b, 20, 2000)}
			if left >= 0 {
				m := savings("sp")
				m.MicroDollars = 100e6
				v.Coverage = leftOf([]capacity.Commitment{m}, left)
			}
			benchmarkPlan(b, v, capacity.Options{Effort: 50000})
		})
	}
}
