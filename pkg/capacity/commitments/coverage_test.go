package commitments

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func typeOf(name string, price float64) *capacity.InstanceType {
	t := &capacity.InstanceType{Name: name}
	for _, zone := range []string{"a", "b"} {
		t.Offers = append(t.Offers, capacity.Offer{Zone: zone, CapacityType: capacity.CapacityTypeOnDemand, Price: price},
			capacity.Offer{Zone: zone, CapacityType: capacity.CapacityTypeSpot, Price: price / 3})
	}
	return t
}

func poolsOf(types ...*capacity.InstanceType) []*capacity.Pool {
	return []*capacity.Pool{{Name: "default", Types: types}}
}

// launched returns a claim with an instance; age counts from the oldest.
func launched(name, instanceType, capacityType string, age int) *capacity.Claim {
	return &capacity.Claim{Name: name, NodeName: "node-" + name, Pool: "default", CreatedAt: time.Unix(int64(1000-age), 0), Launched: true, InstanceType: instanceType, Zone: "a", CapacityType: capacityType}
}

func byName(claims ...*capacity.Claim) map[string]*capacity.Claim {
	out := map[string]*capacity.Claim{}
	for _, c := range claims {
		out[c.Name] = c
	}
	return out
}

func committed(name string, dollars, factor float64, families ...string) capacity.Commitment {
	return capacity.Commitment{Name: name, MicroDollars: capacity.MicroDollarsOf(dollars), RateFactor: factor, Families: families}
}

func TestCoverage(t *testing.T) {
	overlaid := typeOf("o5.large", 1)
	overlaid.Offers[0].PriceOverlaid = true
	pools := poolsOf(typeOf("m5.large", 1), typeOf("m5.xlarge", 2), typeOf("c5.large", 1), overlaid)
	inFlight := func(name string, keys ...string) *capacity.Claim {
		c := &capacity.Claim{Name: name, Pool: "default", CreatedAt: time.Unix(2000, 0), LaunchBatch: &capacity.LaunchBatch{}}
		for _, k := range keys {
			c.LaunchBatch.Offers = append(c.LaunchBatch.Offers, capacity.OfferKey{InstanceType: k, Zone: "b", CapacityType: "on-demand"})
		}
		return c
	}
	deleting := launched("leaving", "m5.large", "on-demand", 9)
	deleting.Deleting = true
	dedicated := launched("own", "m5.large", "on-demand", 9)
	dedicated.Labels = map[string]string{"karpenter.k8s.aws/instance-tenancy": "dedicated"}
	for _, tt := range []struct {
		name        string
		commitments []capacity.Commitment
		claims      map[string]*capacity.Claim
		want        map[string]string
		used        []int64
	}{
		{"the oldest first, and whole nodes only", []capacity.Commitment{committed("sp", 2.5, 1)},
			byName(launched("young", "m5.large", "on-demand", 1), launched("old", "m5.large", "on-demand", 3), launched("large", "m5.xlarge", "on-demand", 2)),
			map[string]string{"old": "sp", "young": "sp"}, []int64{2e6}},
		{"at the plan's rates", []capacity.Commitment{committed("sp", 1.4, 0.7)},
			byName(launched("1", "m5.large", "on-demand", 3), launched("2", "m5.large", "on-demand", 2), launched("3", "m5.large", "on-demand", 1)),
			map[string]string{"1": "sp", "2": "sp"}, []int64{14e5}},
		{"spot, dedicated and leaving nodes use nothing, nor does what an overlay prices", []capacity.Commitment{committed("sp", 9, 1)},
			byName(launched("spot", "m5.large", "spot", 3), deleting, dedicated, launched("overlaid", "o5.large", "on-demand", 2)), map[string]string{}, []int64{0}},
		{"those for families before the general one", []capacity.Commitment{committed("all", 9, 0.8), committed("m5-only", 1, 0.6, "m5")},
			byName(launched("m5-1", "m5.large", "on-demand", 3), launched("m5-2", "m5.large", "on-demand", 2), launched("c5-1", "c5.large", "on-demand", 1)),
			map[string]string{"m5-1": "m5-only", "m5-2": "all", "c5-1": "all"}, []int64{6e5, 16e5}},
		{"in flight with the most that it may use", []capacity.Commitment{committed("sp", 2.5, 1)},
			byName(inFlight("f1", "m5.large", "m5.xlarge"), inFlight("f2", "m5.large")), map[string]string{"f1": "sp"}, []int64{2e6}},
		{"in flight, if all that it may become can use it", []capacity.Commitment{committed("sp", 9, 1, "m5")},
			byName(inFlight("f1", "m5.large", "c5.large"), &capacity.Claim{Name: "asked"}), map[string]string{}, []int64{0}},
		{"a type that nothing is known of", []capacity.Commitment{committed("sp", 9, 1)}, byName(launched("x", "x9.large", "on-demand", 1)), map[string]string{}, []int64{0}},
	} {
		got := New(tt.commitments).Of(pools, tt.claims)
		by := map[string]string{}
		for name := range tt.claims {
			if of := got.Of(name); of != "" {
				by[name] = of
			}
			if node := tt.claims[name].NodeName; node != "" && got.Of(node) != got.Of(name) {
				t.Errorf("%s: %s and %s differ", tt.name, name, node)
			}
		}
		if diff := cmp.Diff(tt.want, by); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.used, got.Used); diff != "" {
			t.Errorf("%s: used (-want +got)\n%s", tt.name, diff)
		}
	}
	if New(nil).Of(pools, nil) != nil {
		t.Error("without commitments there is a coverage")
	}
}

// A node whose pool no longer has its type, or is gone, costs what it did.
func TestPricesAreRemembered(t *testing.T) {
	s, claims := New([]capacity.Commitment{committed("sp", 9, 1)}), byName(launched("n", "m5.large", "on-demand", 1))
	for _, pools := range [][]*capacity.Pool{poolsOf(typeOf("m5.large", 1)), poolsOf(typeOf("c5.large", 1)), nil} {
		if got := s.Of(pools, claims); got.Used[0] != 1e6 {
			t.Errorf("used %d", got.Used[0])
		}
	}
	if got := s.Of(poolsOf(typeOf("m5.large", 2)), claims); got.Used[0] != 2e6 {
		t.Errorf("after the price has risen: used %d", got.Used[0])
	}
}

// Whatever exists: no commitment is overused, what is used adds up, nodes that could be covered are, and removing the nodes that aren't covered changes
// nothing. The latter makes consolidation stable.
func TestCoverageHolds(t *testing.T) {
	pools := poolsOf(typeOf("m5.large", 0.096), typeOf("m5.xlarge", 0.192), typeOf("c5.large", 0.085), typeOf("r5.2xlarge", 0.504))
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var all []capacity.Commitment
		for i := range 1 + r.IntN(3) {
			m := committed(fmt.Sprintf("sp-%d", i), 0.05+2*r.Float64(), 0.5+r.Float64()/2)
			if r.IntN(2) == 0 {
				m.Families = []string{[]string{"m5", "c5", "r5"}[r.IntN(3)]}
			}
			all = append(all, m)
		}
		claims := map[string]*capacity.Claim{}
		for i := range r.IntN(30) {
			c := launched(fmt.Sprintf("n%d", i), pools[0].Types[r.IntN(4)].Name, []string{"on-demand", "spot"}[r.IntN(2)], r.IntN(10))
			claims[c.Name] = c
		}
		got := New(all).Of(pools, claims)
		left, sums := map[string]*capacity.Claim{}, make([]int64, len(all))
		for name, c := range claims {
			n, ok := got.Nodes[name]
			if ok {
				left[name] = c
				sums[n.Commitment] += n.Use
				continue
			}
			for i := range got.Commitments {
				for _, typ := range pools[0].Types {
					if use, may := got.Commitments[i].Use(typ.Name, &typ.Offers[0]); typ.Name == c.InstanceType && c.CapacityType == "on-demand" && may && use <= got.Left(i) {
						t.Fatalf("seed %d: %s isn't covered although %s has enough left", seed, name, got.Commitments[i].Name)
					}
				}
			}
		}
		for i := range sums {
			if sums[i] != got.Used[i] || sums[i] > got.Commitments[i].MicroDollars {
				t.Fatalf("seed %d: %d used of %+v, nodes %d", seed, got.Used[i], got.Commitments[i], sums[i])
			}
		}
		if diff := cmp.Diff(got.Used, New(all).Of(pools, left).Used); diff != "" {
			t.Fatalf("seed %d: without the others (-want +got)\n%s", seed, diff)
		}
	}
}

func TestWhatIsLeft(t *testing.T) {
	c := New([]capacity.Commitment{committed("sp", 3, 1)}).Of(poolsOf(typeOf("m5.large", 1)), byName(launched("n", "m5.large", "on-demand", 1), launched("o", "m5.large", "on-demand", 2)))
	if got := c.Without([]string{"n", "node-o", "unknown"}); got.Left(0) != 3e6 || c.Left(0) != 1e6 {
		t.Errorf("left %d once both are gone, and %d now", got.Left(0), c.Left(0))
	}
	with, ok := c.With(&capacity.PlannedUse{Commitment: "sp", Use: 8e5})
	if _, more := with.With(&capacity.PlannedUse{Commitment: "sp", Use: 3e5}); !ok || more || with.Left(0) != 2e5 {
		t.Errorf("%v, %v, left %d", ok, more, with.Left(0))
	}
	if _, ok := c.With(&capacity.PlannedUse{Commitment: "other", Use: 1}); ok {
		t.Error("a commitment that isn't there has room")
	}
	var none *capacity.Coverage
	if _, ok := none.With(&capacity.PlannedUse{Commitment: "sp"}); ok || none.Room() || none.Of("n") != "" || none.Without([]string{"n"}) != nil {
		t.Error("without commitments something is covered")
	}
}
