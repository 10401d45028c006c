package consolidation

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func onDemand() *capacity.Pool { return testPool("default", "on-demand", testTypes()) }

// shape returns how many nodes each move empties and how many it launches.
func shape(p *Proposal) (out [][2]int) {
	for _, m := range p.Moves {
		out = append(out, [2]int{len(m.Nodes), len(m.New)})
	}
	return out
}

func TestShapesOfMoves(t *testing.T) {
	pool := onDemand()
	small, half, large := testPod("small", 500, 1024), testPod("half", 1000, 4096), testPod("large", 3500, 7000)
	for name, test := range map[string]struct {
		fill func(w *world)
		want [][2]int
	}{
		"a node is deleted where its pods fit elsewhere": {func(w *world) {
			w.add(pool, "c.4", classOf(t, small), 1)
			w.add(pool, "c.4", classOf(t, small), 5)
		}, [][2]int{{1, 0}}},
		"one node is replaced by a cheaper one": {func(w *world) {
			w.add(pool, "r.16", classOf(t, small), 2)
		}, [][2]int{{1, 1}}},
		"one large node is replaced by several small ones": {func(w *world) {
			w.add(pool, "r.16", classOf(t, large), 2)
			w.put(classOf(t, testPod("lean", 1900, 2048)), 1)
		}, [][2]int{{1, 3}}},
		"several nodes are replaced by fewer": {func(w *world) {
			for range 4 {
				w.add(pool, "m.2", classOf(t, half), 1)
			}
		}, [][2]int{{1, 0}, {1, 0}}},
		"a full node is kept": {func(w *world) {
			w.add(pool, "c.2", classOf(t, testPod("full", 2000, 4096)), 1)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, pool).free()
			test.fill(w)
			if got := shape(w.propose()); !slices.Equal(got, test.want) {
				t.Errorf("moves empty and launch %v nodes, want %v", got, test.want)
			}
		})
	}
}

// A's pods fit only on B, and B's only on C: they go to C at once.
func TestChainIsOneMove(t *testing.T) {
	pool := onDemand()
	w := newWorld(t, pool).free()
	class := classOf(t, testPod("x", 1000, 1024))
	w.add(pool, "c.2", class, 1)
	w.add(pool, "c.4", class, 2)
	w.add(pool, "c.8", class, 4)
	p := w.propose()
	for _, m := range p.Moves {
		for _, pl := range m.Placements {
			if pl.Node != "node-2" {
				t.Errorf("a pod goes to %s, which is emptied or kept in vain", pl.Node)
			}
		}
	}
	if len(p.Moves) != 2 {
		t.Errorf("moves: %+v", p.Moves)
	}
}

func TestMoveIsDueWhenItHasPaid(t *testing.T) {
	pool := onDemand()
	w := newWorld(t, pool)
	class := classOf(t, testPod("x", 500, 1024))
	w.add(pool, "c.4", class, 1)
	w.add(pool, "c.4", class, 5)
	first := w.pass(0)
	k := w.kept(first, 0)
	if k.Kind != Paying || k.Saves != w.candidates[0].Price || k.Accrued != 0 || k.Cost <= 0 {
		t.Fatalf("kept: %+v", k)
	}
	due := time.Duration(k.Cost / k.Saves * float64(time.Hour))
	if p := w.pass(due - time.Second); len(p.Moves) > 0 {
		t.Error("the move is made before it has paid")
	}
	p := w.pass(2 * time.Second)
	if len(p.Moves) != 1 {
		t.Fatalf("the move isn't made when it has paid: %+v", p.Kept)
	}
	m := &p.Moves[0]
	if m.PaysBack() != due.Round(0) || !slices.Equal(m.Receivers(), []string{"node-1"}) {
		t.Errorf("it pays back in %s and goes to %q, want %s", m.PaysBack(), m.Receivers(), due)
	}
	w.options.Accrual.Pay(m, w.options.Now)
	if a, all := w.options.Accrual, w.options.Accrual.Totals()[w.candidates[0].Pool]; all.Paid > all.Accrued || all.Paid < m.Cost*0.999 || a.Of("node-0", w.options.Now) > 1e-4 || !slices.Equal(a.Nodes(), []string{"node-0"}) {
		t.Errorf("accrued %f, paid %f", all.Accrued, all.Paid)
	}
}

func TestReasonsForKeepingNodes(t *testing.T) {
	pool := onDemand()
	class := classOf(t, testPod("x", 500, 1024))
	for name, test := range map[string]struct {
		change func(w *world, c *Candidate, p *Policy)
		kind   Kind
		text   string
	}{
		"blocked": {func(_ *world, c *Candidate, _ *Policy) {
			c.Blocked = &Kept{Kind: BlockedByPDB, Name: "x", Pod: c.Pods[0].Ref}
		}, BlockedByPDB, "the PodDisruptionBudget x allows no eviction of pod default/x-1"},
		"young":       {func(_ *world, c *Candidate, p *Policy) { c.CreatedAt, p.RestartCost = noon, time.Minute }, Young, "the node is new: its first hour is over at 2026-11-23T13:00:00Z"},
		"received":    {func(_ *world, c *Candidate, _ *Policy) { c.ReceivedUntil = noon.Add(time.Minute) }, Received, "the node took pods of another move, which will have paid for itself at 2026-11-23T12:01:00Z"},
		"no price":    {func(_ *world, c *Candidate, _ *Policy) { c.Price = math.Inf(1) }, NoPrice, "the price of the node is unknown"},
		"policy":      {func(_ *world, _ *Candidate, p *Policy) { p.Consolidate = WhenEmpty }, PolicyWhenEmpty, "the pool consolidates empty nodes only"},
		"budget":      {func(_ *world, _ *Candidate, p *Policy) { p.Budgets = nil }, Budget, "the pool's disruption budgets allow no more nodes now for reason Underutilized"},
		"no policy":   {func(w *world, _ *Candidate, _ *Policy) { w.options.Pools = map[string]Policy{} }, Disabled, "the pool has consolidation disabled"},
		"no capacity": {func(w *world, _ *Candidate, _ *Policy) { w.view.Nodes[1].Closed = true; w.view.Pools[0].Unready = "no" }, Full, "there is no other place for pod default/x-1"},
		"dearer":      {func(w *world, _ *Candidate, _ *Policy) { w.view.Nodes[1].Closed = true }, Dearer, "its pods would cost $0.0800/h elsewhere, and it costs $0.0800/h"},
		"worthless":   {func(_ *world, c *Candidate, p *Policy) { c.Price, p.RestartCost = 0.0001, 10*time.Minute }, NotWorth, "emptying it would save $0.0001/h, which doesn't pay within 40 minutes for the $0.0022 that it costs to move its pods"},
		"paying":      {func(_ *world, _ *Candidate, p *Policy) { p.RestartCost = 10 * time.Minute }, Paying, "emptying it would save $0.0800/h; $0.0000 of $0.0044 have accrued that it costs to move its pods"},
		"filters": {func(w *world, c *Candidate, _ *Policy) {
			w.options.Prices.Forbidden = []capacity.Forbidden{{Class: class.Key, Node: "node-1"}, {Class: class.Key, Pool: "default"}}
		}, Full, "there is no other place for pod default/x-1"},
		"limit": {func(w *world, c *Candidate, _ *Policy) {
			w.view.Nodes[1].Closed, c.Price = true, 1
			w.view.Pools[0].Limits, w.view.Pools[0].Used = capacity.Resources{"cpu": 7000}, capacity.Resources{"cpu": 6000}
		}, Full, "there is no other place for pod default/x-1"},
		"limit of all pools": {func(w *world, c *Candidate, _ *Policy) {
			w.view.Nodes[1].Closed, c.Price = true, 1
			w.view.Pools[0].Total = &capacity.Total{Limits: capacity.Resources{"cpu": 7000}, Used: capacity.Resources{"cpu": 6000}}
		}, Full, "there is no other place for pod default/x-1"},
	} {
		t.Run(name, func(t *testing.T) {
			own := *pool
			w := newWorld(t, &own).free()
			w.add(&own, "c.2", class, 1)
			w.add(&own, "c.16", class, 5)
			w.candidates[1].Blocked = &Kept{Kind: Protected}
			w.candidates[1].Price = w.candidates[0].Price
			p := w.options.Pools["default"]
			w.options.Pools["default"] = p
			test.change(w, &w.candidates[0], &p)
			if len(w.options.Pools) > 0 {
				w.options.Pools["default"] = p
			}
			k := w.kept(w.propose(), 0)
			if k.Kind != test.kind || k.Text() != test.text {
				t.Errorf("kept as %s: %s\nwant %s: %s", k.Kind, k.Text(), test.kind, test.text)
			}
		})
	}
}

// The examples are Karpenter's: a move is approved if its part of the cost is at least half of its part of the disruption.
func TestBalanced(t *testing.T) {
	pool := onDemand()
	for name, test := range map[string]struct {
		pods  int // on the node to be emptied; each of nine others has ten
		moves int
	}{"few pods": {5, 1}, "a part of the pods like that of the cost": {10, 1}, "too many pods": {24, 0}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, pool).free()
			p := w.options.Pools["default"]
			p.Consolidate = Balanced
			w.options.Pools["default"] = p
			class := classOf(t, testPod("x", 50, 64))
			for range 9 {
				w.add(pool, "c.2", class, 10)
				w.candidates[len(w.candidates)-1].Blocked = &Kept{Kind: Protected}
			}
			w.add(pool, "c.2", class, test.pods)
			out := w.propose()
			if len(out.Moves) != test.moves {
				t.Errorf("moves: %+v, kept: %+v", out.Moves, out.Kept)
			}
			own, all := 1+float64(test.pods), 99+1+float64(test.pods)
			if want := 0.1 / (own / all); test.moves == 0 && math.Abs(w.kept(out, 9).Score-want) > 1e-9 {
				t.Errorf("score %f, want %f", w.kept(out, 9).Score, want)
			}
		})
	}
}

func TestSpotNeedsFlexibility(t *testing.T) {
	for types, want := range map[int]int{2: 0, 12: 1} {
		pool := testPool("default", "spot", testTypes()[:types])
		w := newWorld(t, pool).free()
		p := w.options.Pools["default"]
		p.SpotFlexibility = 4
		w.options.Pools["default"] = p
		c := w.node(pool, pool.Types[len(pool.Types)-1].Name, "a")
		c.Price = 5
		w.put(classOf(t, testPod("x", 500, 1024)), 1)
		out := w.propose()
		if len(out.Moves) != want {
			t.Fatalf("with %d types: %d moves, want %d", types, len(out.Moves), want)
		}
		if want == 0 {
			if k := w.kept(out, 0); k.Kind != Flexibility || k.Count != 2 || k.Needed != 4 {
				t.Errorf("kept: %+v", k)
			}
		}
	}
}

// A new spot node gets as many types as were counted: also where the pool wants more of them than Karpenter, or fewer.
func TestSpotNodesHaveTheTypesCounted(t *testing.T) {
	var types []*capacity.InstanceType
	for i := range 24 {
		types = append(types, testType(fmt.Sprintf("t%d.2", i), 2, 4, .08+.002*float64(i)))
	}
	for _, flexible := range []int{4, 15, 18} {
		pool := testPool("default", "spot", types)
		w := newWorld(t, pool).free()
		p := w.options.Pools["default"]
		p.SpotFlexibility = flexible
		w.options.Pools["default"] = p
		w.node(pool, "t23.2", "a").Price = 5
		w.put(classOf(t, testPod("x", 500, 1024)), 1)
		out := w.propose()
		if len(out.Moves) != 1 || len(out.Moves[0].New) != 1 {
			t.Fatalf("moves: %+v", out.Moves)
		}
		seen := map[string]bool{}
		for _, o := range out.Moves[0].New[0].Offers {
			seen[o.Type.Name] = true
		}
		if len(seen) != flexible {
			t.Errorf("a spot node replaces a spot node with %d types, want %d", len(seen), flexible)
		}
	}
}

// A spot node that has to go doesn't wait until enough types are cheaper.
func TestForcedSpotNodeNeedsNoFlexibility(t *testing.T) {
	pool := testPool("default", "spot", testTypes()[:2])
	w := newWorld(t, pool)
	w.node(pool, "c.2", "a").Forced = Interrupted
	w.put(classOf(t, testPod("x", 500, 1024)), 1)
	if out := w.propose(); len(out.Moves) != 1 || len(out.Moves[0].New) != 1 {
		t.Errorf("moves: %+v, kept: %+v", out.Moves, out.Kept)
	}
}

// What is launched for a node that has to go takes no pods of a node that may wait: they would be one move, whatever it costs.
func TestForcedMovesAreApart(t *testing.T) {
	pool := onDemand()
	w := newWorld(t, pool)
	class := classOf(t, testPod("x", 1000, 1024))
	w.add(pool, "c.4", class, 3)
	w.candidates[0].Forced = Drifted
	w.add(pool, "c.4", class, 1)
	w.view.Nodes[1].Taints = []corev1.Taint{{Key: "full", Effect: corev1.TaintEffectNoSchedule}}
	for _, m := range w.propose().Moves {
		if len(m.Nodes) != 1 {
			t.Errorf("a move for reason %s empties %q", m.Reason, m.Nodes)
		}
	}
}

func TestReservedCapacityIsUsed(t *testing.T) {
	pool := testPool("default", "on-demand", testTypes())
	pool.Requirements = nil
	reserved := *pool.Types[1]
	reserved.Name, reserved.Offers = "c.4", append(slices.Clone(reserved.Offers), capacity.Offer{Zone: "a", CapacityType: capacity.CapacityTypeReserved,
		Price: 1e-8, Available: true, ReservationID: "cr-1", Remaining: 1})
	w := newWorld(t, testPool("default", "on-demand", testTypes())).free()
	for range 2 {
		w.add(w.view.Pools[0], "c.4", classOf(t, testPod("x", 3000, 4096)), 1)
	}
	pool.Types[1] = &reserved
	for _, typ := range pool.Types {
		typ.Offers = slices.DeleteFunc(slices.Clone(typ.Offers), func(o capacity.Offer) bool { return o.CapacityType == "spot" })
	}
	w.view.Pools[0] = pool
	out := w.propose()
	if len(out.Moves) != 1 || len(out.Moves[0].New) != 1 || out.Moves[0].New[0].CapacityType != capacity.CapacityTypeReserved {
		t.Errorf("one node moves to the capacity that is paid for: %+v", out.Moves)
	}
}

// Nodes that have to go are emptied whatever it costs, and never on each other.
func TestForcedNodes(t *testing.T) {
	pool := onDemand()
	w := newWorld(t, pool)
	class := classOf(t, testPod("x", 1900, 2048))
	for range 3 {
		w.add(pool, "c.4", class, 1)
	}
	w.candidates[0].Forced, w.candidates[1].Forced = Expired, Drifted
	w.candidates[1].CreatedAt = noon
	out := w.propose()
	nodes := 0
	for _, m := range out.Moves {
		nodes += len(m.Nodes)
		if !math.IsInf(m.Ceiling, 1) || m.Reason != Expired && m.Reason != Drifted {
			t.Errorf("move: %+v", m)
		}
	}
	if nodes != 2 {
		t.Errorf("%d nodes are emptied, want 2: %+v", nodes, out.Kept)
	}
}

func TestEmptyNodesAreRemovedAtOnce(t *testing.T) {
	pool := onDemand()
	w := newWorld(t, pool)
	w.node(pool, "c.4", "a").CreatedAt = noon
	w.add(pool, "c.8", classOf(t, testPod("spare", 1900, 2048)), 1)
	w.candidates[1].Pods[0].Cost = 0
	if out := w.propose(); len(out.Moves) != 2 || out.Moves[0].Nodes[0] != "node-1" || out.Moves[0].Reason != Empty {
		t.Errorf("moves: %+v", out.Moves)
	}
}

// What pods prefer about other pods is compared with what they have now: a move makes it no worse, unless preferences don't count.
func TestPreferencesAboutOtherPods(t *testing.T) {
	pool := onDemand()
	term := func(key string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}
	}
	spread := func(key string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}}
		}
	}
	anti := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 10, PodAffinityTerm: term(capacity.LabelHostname)}}}}
	}
	near := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 10, PodAffinityTerm: term(capacity.LabelZone)}}}}
	}
	for name, tc := range map[string]struct {
		change      func(*corev1.Pod)
		pods, there int // on the node to be emptied, and on the other one
		zone        string
		moves       int
	}{
		"another zone, spread":           {spread(capacity.LabelZone), 1, 0, "b", 0},
		"the same zone, spread":          {spread(capacity.LabelZone), 1, 1, "a", 1},
		"another zone, affinity":         {near, 1, 0, "b", 0},
		"a node with another, spread":    {spread(capacity.LabelHostname), 1, 1, "a", 0},
		"a node with another, apart":     {anti, 1, 1, "a", 0},
		"a node with none":               {anti, 1, 0, "a", 1},
		"two that are together now":      {anti, 2, 0, "a", 1},
		"two that would be with a third": {anti, 2, 1, "a", 0},
	} {
		for _, ignore := range []bool{false, true} {
			w := newWorld(t, pool).free()
			w.options.Prices.IgnorePreferences = ignore
			class := classOf(t, testPod("x", 500, 1024, tc.change))
			w.add(pool, "c.2", class, tc.pods)
			w.node(pool, "c.16", tc.zone)
			w.put(classOf(t, testPod("y", 500, 512)), 1)
			w.put(class, tc.there)
			w.candidates[1].Blocked = &Kept{Kind: Protected}
			want := tc.moves
			if ignore {
				want = 1
			}
			if out := w.propose(); len(out.Moves) != want {
				t.Errorf("%s, ignored %v: moves %+v, want %d; kept %+v", name, ignore, out.Moves, want, out.Kept)
			}
		}
	}
}

// Pods of one size are told apart where others keep off some of them.
func TestApartFromOnesOfTheSameSize(t *testing.T) {
	for _, first := range []string{"y", "z"} {
		pool := onDemand()
		w := newWorld(t, pool).free()
		w.add(pool, "c.2", classOf(t, testPod("x", 500, 1024, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: capacity.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "y"}}}}}}
		})), 1)
		w.add(pool, "c.16", classOf(t, testPod(first, 500, 512)), 1)
		w.put(classOf(t, testPod(map[string]string{"y": "z", "z": "y"}[first], 500, 512)), 1)
		w.candidates[1].Blocked = &Kept{Kind: Protected}
		if out := w.propose(); len(out.Moves) > 0 {
			t.Errorf("a pod is moved to one that it keeps off: %+v", out.Moves)
		}
	}
}

// Pods prefer to share a node with pods y, or not to. What they have now is not given up, unless preferences don't count or the node has to go.
func TestPreferencesAboutPodsOfOtherClasses(t *testing.T) {
	pool := onDemand()
	terms := []corev1.WeightedPodAffinityTerm{{Weight: 10, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: capacity.LabelHostname,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "y"}}}}}
	with := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	alone := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	for name, tc := range map[string]struct {
		x, y        func(*corev1.Pod)
		here, there int // pods y on the node to be emptied, and on the other one
		moves       int
	}{
		"with them now":                      {with, nil, 1, 1, 0},
		"without them now":                   {with, nil, 0, 0, 1},
		"apart now":                          {alone, nil, 0, 1, 0},
		"apart now, and there":               {alone, nil, 0, 0, 1},
		"not apart now":                      {alone, nil, 1, 1, 1},
		"it would come to one that is alone": {nil, alone, 0, 1, 1}, // y prefers to be without y
	} {
		for _, forced := range []bool{false, true} {
			for _, ignore := range []bool{false, true} {
				w := newWorld(t, pool).free()
				w.options.Prices.IgnorePreferences = ignore
				none := func(*corev1.Pod) {}
				change := map[bool]func(*corev1.Pod){false: tc.x, true: none}[tc.x == nil]
				y := testPod("y", 500, 512, map[bool]func(*corev1.Pod){false: tc.y, true: none}[tc.y == nil])
				w.add(pool, "c.2", classOf(t, testPod("x", 500, 1024, change)), 1)
				w.put(classOf(t, y), tc.here)
				w.node(pool, "c.16", "a")
				w.put(classOf(t, testPod("z", 500, 512)), 1)
				w.put(classOf(t, y), tc.there)
				w.candidates[1].Blocked = &Kept{Kind: Protected}
				want := tc.moves
				if forced {
					w.candidates[0].Forced = Expired
				}
				if ignore || forced {
					want = 1
				}
				if out := w.propose(); len(out.Moves) != want {
					t.Errorf("%s, forced %v, ignored %v: moves %+v, want %d; kept %+v", name, forced, ignore, out.Moves, want, out.Kept)
				}
			}
		}
	}
}

// A node that ends soon gets no pods of moves, and may be emptied itself.
func TestEndingNodesGetNoPods(t *testing.T) {
	pool := onDemand()
	class := classOf(t, testPod("x", 500, 1024))
	for _, ending := range []bool{false, true} {
		w := newWorld(t, pool).free()
		w.add(pool, "c.2", class, 1)
		w.add(pool, "c.16", class, 5)
		w.candidates[1].Blocked, w.candidates[1].Ending = &Kept{Kind: Protected}, ending
		if out := w.propose(); (len(out.Moves) == 0) != ending {
			t.Errorf("ending: %v; moves: %+v", ending, out.Moves)
		}
		w.candidates[1].Blocked, w.candidates[0].Blocked = nil, &Kept{Kind: Protected}
		w.candidates[1].Price = 5
		if out := w.propose(); len(out.Moves) != 1 || out.Moves[0].Nodes[0] != "node-1" {
			t.Errorf("ending: %v; moves: %+v", ending, out.Moves)
		}
	}
}

// A node with pods of another scheduler isn't replaced, although only pods of ours would need the new node.
func TestNodesWithPodsOfOtherSchedulersAreNotReplaced(t *testing.T) {
	pool := onDemand()
	others := *classOf(t, testPod("x", 500, 512))
	others.ByOthers = true
	w := newWorld(t, pool).free()
	w.add(pool, "r.16", &others, 1)
	w.put(classOf(t, testPod("big", 3500, 1024)), 1)
	w.add(pool, "c.4", classOf(t, testPod("y", 2000, 512)), 1) // has capacity for twice the other scheduler's pod, and none for the big one
	w.candidates[1].Blocked = &Kept{Kind: Protected}
	out := w.propose()
	if len(out.Moves) != 0 || w.kept(out, 0).Kind != Unmovable {
		t.Errorf("moves: %+v, kept: %+v", out.Moves, out.Kept)
	}
}

// Pods that another scheduler binds may go elsewhere: there must be capacity for twice as many, and nothing is launched for them.
func TestPodsOfOtherSchedulers(t *testing.T) {
	pool := onDemand()
	class := *classOf(t, testPod("x", 1000, 1024))
	class.ByOthers = true
	for free, want := range map[string]int{"c.2": 0, "c.4": 1} {
		w := newWorld(t, pool).free()
		w.add(pool, "r.16", &class, 1)
		w.add(pool, free, classOf(t, testPod("y", 500, 512)), 1)
		w.candidates[1].Blocked = &Kept{Kind: Protected}
		if out := w.propose(); len(out.Moves) != want {
			t.Errorf("with %s: %+v %+v", free, out.Moves, out.Kept)
		}
	}
}

// A new node that pods depend on has the zone that they ask for, whatever is launched.
func TestPlannedNodeHasFixedLabels(t *testing.T) {
	pool := onDemand()
	w := newWorld(t, pool).free()
	w.add(pool, "r.16", classOf(t, testPod("x", 500, 1024, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{capacity.LabelZone: "b"} })), 1)
	out := w.propose()
	if len(out.Moves) != 1 || out.Moves[0].New[0].Labels[capacity.LabelZone] != "b" || strings.Contains(out.Moves[0].New[0].ID, "node") {
		t.Errorf("moves: %+v", out.Moves)
	}
}
