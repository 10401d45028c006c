package consolidation

import (
	"slices"
	"strings"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/commitments"
)

// paidBy lets commitments pay for the world's nodes, and gives those that are covered the price that the scheduler gives them.
func (w *world) paidBy(all ...capacity.Commitment) *world {
	claims := map[string]*capacity.Claim{}
	for i, n := range w.view.Nodes {
		x := &w.candidates[i]
		claims[n.Name] = &capacity.Claim{Name: n.Name, NodeName: n.Name, Pool: x.Pool, CreatedAt: x.CreatedAt, Launched: true,
			InstanceType: n.Labels["node.kubernetes.io/instance-type"], Zone: n.Labels[capacity.LabelZone], CapacityType: x.CapacityType}
	}
	w.view.Coverage = commitments.New(all).Of(w.view.Pools, claims)
	prices := NodePricesOf(w.view.Pools, w.view.Coverage, &w.options.Prices)
	for i := range w.candidates {
		c := claims[w.candidates[i].Node]
		price, ok := prices.Of(c.Name, c.Pool, c.InstanceType, c.Zone, c.CapacityType)
		if !ok {
			w.t.Fatalf("the price of %s is unknown", c.Name)
		}
		w.candidates[i].Price = price
	}
	return w
}

func committing(dollars float64) capacity.Commitment {
	return capacity.Commitment{Name: "sp", MicroDollars: capacity.MicroDollarsOf(dollars), RateFactor: 0.7}
}

// mixed returns a world with a full c.4 on demand ($0.16, which uses $0.112 of a commitment) in a pool that allows spot capacity, where it would cost $0.064.
func mixed(t *testing.T, nodes int) *world {
	pool := onDemand()
	w := newWorld(t, pool).free()
	for range nodes {
		w.add(pool, "c.4", classOf(t, testPod("x", 3000, 4096)), 1)
	}
	pool.Requirements = nil
	return w
}

func kindsOf(p *Proposal) (out []string) {
	for i := range p.Kept {
		out = append(out, string(p.Kept[i].Kind))
	}
	return out
}

func TestACoveredNodeIsNotReplacedBySpot(t *testing.T) {
	w := mixed(t, 1)
	if out := w.propose(); len(out.Moves) != 1 || out.Moves[0].New[0].CapacityType != capacity.CapacityTypeSpot {
		t.Fatalf("without a commitment it is replaced by spot: %+v", out.Moves)
	}
	w = mixed(t, 1).paidBy(committing(0.112))
	out := w.propose()
	if len(out.Moves) != 0 || !slices.Equal(kindsOf(out), []string{"Covered"}) {
		t.Errorf("%+v, %v", out.Moves, kindsOf(out))
	}
	if text := out.Kept[0].Text(); !strings.Contains(text, "covered by commitment sp: replacing it would save nothing") {
		t.Error(text)
	}
	if out := mixed(t, 1).paidBy(committing(0.03)).propose(); len(out.Moves) != 1 || out.Moves[0].New[0].CapacityType != capacity.CapacityTypeSpot || out.Moves[0].New[0].Covered.Commitment != "" {
		t.Errorf("of a node that doesn't fit in the commitment: %+v", out.Moves)
	}
}

// Of two nodes one is covered, and only the other one is replaced.
func TestOnlyUncoveredNodesAreReplaced(t *testing.T) {
	w := mixed(t, 2).paidBy(committing(0.15))
	out := w.propose()
	if len(out.Moves) != 1 || !slices.Equal(out.Moves[0].Nodes, []string{"node-1"}) || out.Moves[0].New[0].CapacityType != capacity.CapacityTypeSpot {
		t.Errorf("%+v", out.Moves)
	}
}

// A spot node is replaced by one that a commitment pays for, as often as anything is left of it, and then nothing moves any more.
func TestSpotMovesToWhatIsLeft(t *testing.T) {
	spot := testPool("default", "spot", testTypes())
	w := newWorld(t, spot).free()
	class := classOf(t, testPod("x", 3000, 4096))
	for range 3 {
		w.add(spot, "c.4", class, 1)
	}
	spot.Requirements = nil
	w.paidBy(committing(0.25)) // enough for two
	out := w.propose()
	if len(out.Moves) != 2 {
		t.Fatalf("%d moves", len(out.Moves))
	}
	after := newWorld(t, spot).free()
	pool := onDemand()
	pool.Types = spot.Types
	for _, m := range out.Moves {
		if len(m.New) != 1 || m.New[0].Covered.Commitment != "sp" || m.New[0].CapacityType != capacity.CapacityTypeOnDemand || m.Ceiling <= 0 {
			t.Fatalf("%+v", m)
		}
		after.add(pool, m.New[0].Offers[0].Type.Name, class, 1)
	}
	after.add(testPool("default", "spot", spot.Types), "c.4", class, 1)
	if again := after.paidBy(committing(0.25)).propose(); len(again.Moves) != 0 {
		t.Errorf("and then %+v", again.Moves)
	}
}

// A covered node that has to go leaves its commitment to the node that takes its place, and to no other.
func TestReplacementsInheritCommitments(t *testing.T) {
	w := mixed(t, 1)
	w.candidates[0].Forced = Drifted
	if out := w.propose(); len(out.Moves) != 1 || out.Moves[0].New[0].CapacityType != capacity.CapacityTypeSpot {
		t.Fatalf("without a commitment: %+v", out.Moves)
	}
	w = mixed(t, 1).paidBy(committing(0.112))
	w.candidates[0].Forced = Drifted
	if out := w.propose(); len(out.Moves) != 1 || out.Moves[0].New[0].Covered.Commitment != "sp" {
		t.Errorf("%+v", out.Moves)
	}
	// The budget lets it stay for now: what it uses isn't free for a spot node.
	spot := testPool("default", "spot", testTypes())
	w = mixed(t, 1)
	w.add(spot, "c.4", classOf(t, testPod("x", 3000, 4096)), 1)
	w.view.Pools[0].Types = spot.Types
	w.paidBy(committing(0.112))
	w.candidates[0].Forced = Drifted
	policy := w.options.Pools["default"]
	policy.Budgets = map[Reason]int{Underutilized: 10}
	w.options.Pools["default"] = policy
	for _, m := range w.propose().Moves {
		for _, n := range m.New {
			if m.Reason == Underutilized && n.Covered.Commitment != "" {
				t.Errorf("%+v", m)
			}
		}
	}
}

// What pods are worth for the cost of their restart doesn't depend on who pays.
func TestRestartsCostListPrice(t *testing.T) {
	mean := func(w *world) float64 {
		return newCluster(w.view, w.candidates, w.options, &memory{}).mean["default"]
	}
	if plain, covered := mean(mixed(t, 2)), mean(mixed(t, 2).paidBy(committing(0.15))); plain != covered {
		t.Errorf("%v, with a commitment %v", plain, covered)
	}
}

// A covered node still costs the surcharge, which no commitment pays.
func TestSurchargesAreNotCovered(t *testing.T) {
	w := mixed(t, 2)
	w.options.Prices.NodeSurcharge = 0.01
	w.paidBy(committing(0.15))
	if a, b := w.candidates[0].Price, w.candidates[1].Price; a != 0.01 || b != 0.17 {
		t.Errorf("covered %v, and not covered %v", a, b)
	}
}
