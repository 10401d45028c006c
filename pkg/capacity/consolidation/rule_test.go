package consolidation

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// marking sets something of the offerings of some types of a capacity type: all types without names.
func marking(capacityType string, change func(*capacity.Offer), names ...string) func([]*capacity.InstanceType) {
	return func(all []*capacity.InstanceType) {
		for _, t := range all {
			for i := range t.Offers {
				if o := &t.Offers[i]; o.CapacityType == capacityType && (len(names) == 0 || slices.Contains(names, t.Name+"/"+o.Zone)) {
					change(o)
				}
			}
		}
	}
}

func toLeave(o *capacity.Offer)     { o.Leaving = true }
func unsettled(o *capacity.Offer)   { o.Unsettled = true }
func unavailable(o *capacity.Offer) { o.Available = false }

// both returns a pool of both capacity types, and the pools in which nodes of one of them are made.
func both(change ...func([]*capacity.InstanceType)) *capacity.Pool {
	types := testTypes()
	for _, f := range change {
		f(types)
	}
	p := testPool("default", "spot", types)
	p.Requirements = capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, "spot", "on-demand"))
	return p
}

// used adds a node of a capacity type of the pool with one pod, which needs about all of it.
func (w *world) used(p *capacity.Pool, capacityType string, change func(*Candidate)) {
	one := *p
	one.Requirements = capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, capacityType))
	w.add(&one, "c.4", classOf(w.t, testPod("x", 3000, 4096)), 1)
	c := &w.candidates[len(w.candidates)-1]
	c.Pool = p.Name
	change(c)
}

// A node is not emptied to save money if that needs capacity which was refused a short time ago: it may be refused again. A node that has to go
// doesn't wait for that.
func TestMovesNeedSettledCapacity(t *testing.T) {
	od := func(change ...func([]*capacity.InstanceType)) *capacity.Pool {
		types := testTypes()
		for _, f := range change {
			f(types)
		}
		return testPool("default", "on-demand", types)
	}
	for name, tc := range map[string]struct {
		pool     *capacity.Pool
		forced   Reason
		want     int // moves
		may, not string
	}{
		"all is settled":         {pool: od(), want: 1, may: "c.4"},
		"another type":           {pool: od(marking("on-demand", unsettled, "c.4/a", "c.4/b")), want: 1, may: "m.4", not: "c.4"},
		"nothing is":             {pool: od(marking("on-demand", unsettled))},
		"nothing is, it drifted": {pool: od(marking("on-demand", unsettled)), forced: Drifted, want: 1, may: "c.4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.pool).free()
			w.add(tc.pool, "c.16", classOf(t, testPod("x", 3000, 4096)), 1)
			w.candidates[0].Forced, w.candidates[0].ForcedAt = tc.forced, noon
			policy := w.options.Pools["default"]
			policy.Budgets = map[Reason]int{Drifted: 1, Underutilized: 1}
			w.options.Pools["default"] = policy
			p := w.propose()
			if len(p.Moves) != tc.want {
				t.Fatalf("moves %+v, kept %+v", p.Moves, p.Kept)
			}
			types := map[string]bool{}
			for _, m := range p.Moves {
				for _, n := range m.New {
					for _, o := range n.Offers {
						types[o.Type.Name] = true
					}
				}
			}
			if tc.may != "" && !types[tc.may] || types[tc.not] {
				t.Errorf("it may become %v", types)
			}
		})
	}
}

// A node whose capacity EC2 recommends to leave is replaced by other spot capacity that may last longer, however little it saves, and by
// nothing else.
func TestRebalance(t *testing.T) {
	recommended := func(c *Candidate) { c.Forced, c.ForcedAt = RebalanceRecommended, noon.Add(-time.Minute) }
	for name, tc := range map[string]struct {
		pool *capacity.Pool
		left int // of the budget
		why  Kind
	}{
		"another zone":               {both(marking("spot", toLeave, "c.4/a")), 1, ""},
		"another type":               {both(marking("spot", toLeave, "c.4/a", "c.4/b")), 1, ""},
		"much dearer spot is none":   {both(marking("spot", toLeave, "c.4/a", "c.4/b", "m.4/a", "m.4/b", "c.8/a", "c.8/b", "r.4/a", "r.4/b")), 1, Dearer},
		"all spot is to be left":     {both(marking("spot", toLeave)), 1, Dearer},
		"the rest was refused":       {both(marking("spot", toLeave, "c.4/a"), marking("spot", unsettled)), 1, Dearer},
		"the rest is gone":           {both(marking("spot", toLeave, "c.4/a"), marking("spot", unavailable)), 1, Dearer},
		"a budget that allows none":  {both(marking("spot", toLeave, "c.4/a")), 0, Budget},
		"spot of one type is enough": {both(marking("spot", unavailable), marking("spot", func(o *capacity.Offer) { o.Available = true }, "c.4/a", "c.4/b"), marking("spot", toLeave, "c.4/a")), 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.pool)
			w.used(tc.pool, "spot", recommended)
			policy := w.options.Pools["default"]
			policy.Budgets = map[Reason]int{RebalanceRecommended: tc.left}
			policy.Consolidate = WhenEmpty
			w.options.Pools["default"] = policy
			p := w.propose()
			if tc.why != "" {
				if k := w.kept(p, 0); len(p.Moves) > 0 || k.Kind != tc.why {
					t.Errorf("moves %v, kept %+v", p.Moves, k)
				}
				return
			}
			if len(p.Moves) != 1 || p.Moves[0].Reason != RebalanceRecommended || len(p.Moves[0].New) != 1 {
				t.Fatalf("moves %+v, kept %+v", p.Moves, p.Kept)
			}
			m, price := p.Moves[0], w.candidates[0].Price
			if m.Ceiling != price*leavingMost {
				t.Errorf("the new node may cost %v instead of %v", m.Ceiling, price)
			}
			for _, o := range m.New[0].Offers {
				if o.Offer.CapacityType != "spot" || o.Offer.Leaving || o.Offer.Unsettled || o.Offer.Price > m.Ceiling {
					t.Errorf("%s in %s may be launched: %+v", o.Type.Name, o.Offer.Zone, o.Offer)
				}
			}
		})
	}
}

// Recommendations for many nodes at once are followed at the pace of the budget.
func TestRebalanceOfMany(t *testing.T) {
	p := both(marking("spot", toLeave, "c.4/a"))
	w := newWorld(t, p)
	for range 30 {
		w.used(p, "spot", func(c *Candidate) { c.Forced, c.ForcedAt = RebalanceRecommended, noon })
	}
	policy := w.options.Pools["default"]
	policy.Budgets = map[Reason]int{RebalanceRecommended: 3}
	w.options.Pools["default"] = policy
	out := w.propose()
	nodes, bought := 0, 0
	for _, m := range out.Moves {
		nodes, bought = nodes+len(m.Nodes), bought+len(m.New)
	}
	if nodes != 3 || bought > 3 {
		t.Errorf("%d nodes are replaced by %d, want 3 by 3 at most", nodes, bought)
	}
}

// A node that was bought on demand for want of spot capacity returns to it when it has been there for half an hour, within its first hour, too.
func TestReturnToSpot(t *testing.T) {
	for name, tc := range map[string]struct {
		pool      *capacity.Pool
		change    func(c *Candidate)
		free      bool // restarts cost nothing
		why       Kind
		settled   bool // it may be of one offering only
		whenEmpty bool
	}{
		"spot is back":                   {pool: both()},
		"at once is too early":           {pool: both(), change: func(c *Candidate) { c.ReturnsAt = noon.Add(time.Second) }, why: Young},
		"also where moves are free":      {pool: both(), change: func(c *Candidate) { c.ReturnsAt = noon.Add(time.Second) }, free: true, why: WantOfSpot},
		"and for old nodes":              {pool: both(), change: func(c *Candidate) { c.ReturnsAt, c.CreatedAt = noon.Add(time.Second), noon.Add(-3*time.Hour) }, why: WantOfSpot},
		"spot flickers":                  {pool: both(marking("spot", unsettled)), why: WantOfSpot},
		"it flickers where it's free":    {pool: both(marking("spot", unsettled)), free: true, why: WantOfSpot},
		"it is still gone":               {pool: both(marking("spot", unavailable)), why: WantOfSpot},
		"one offering is back":           {pool: both(marking("spot", unsettled), marking("spot", func(o *capacity.Offer) { o.Unsettled = false }, "c.4/b")), settled: true},
		"EC2 recommends to leave it":     {pool: both(marking("spot", toLeave)), why: WantOfSpot},
		"nodes are emptied when empty":   {pool: both(), whenEmpty: true, why: PolicyWhenEmpty},
		"another node in its first hour": {pool: both(), change: func(c *Candidate) { c.ReturnsAt = time.Time{} }, why: Young},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.pool)
			w.used(tc.pool, "on-demand", func(c *Candidate) {
				c.CreatedAt, c.ReturnsAt = noon.Add(-35*time.Minute), noon.Add(-5*time.Minute)
				if tc.change != nil {
					tc.change(c)
				}
			})
			if tc.free {
				w.free()
			}
			if tc.whenEmpty {
				policy := w.options.Pools["default"]
				policy.Consolidate = WhenEmpty
				w.options.Pools["default"] = policy
			}
			p := w.propose()
			if tc.why != "" {
				if k := w.kept(p, 0); len(p.Moves) > 0 || k.Kind != tc.why {
					t.Errorf("moves %+v, kept %+v", p.Moves, k)
				} else if tc.why == WantOfSpot && !strings.Contains(k.Text(), "on demand for want of spot capacity") {
					t.Errorf("the text is %q", k.Text())
				}
				return
			}
			if len(p.Moves) != 1 || p.Moves[0].Reason != Underutilized || len(p.Moves[0].New) != 1 || p.Moves[0].New[0].CapacityType != "spot" {
				t.Fatalf("moves %+v, kept %+v", p.Moves, p.Kept)
			}
			for _, o := range p.Moves[0].New[0].Offers {
				if tc.settled && (o.Type.Name != "c.4" || o.Offer.Zone != "b") {
					t.Errorf("%s in %s may be launched", o.Type.Name, o.Offer.Zone)
				}
			}
		})
	}
}

// Within its first hour such a node isn't emptied to save money in another way.
func TestReturnIsToSpotOnly(t *testing.T) {
	p := both(marking("spot", unavailable))
	w := newWorld(t, p)
	w.used(p, "on-demand", func(c *Candidate) {
		c.CreatedAt, c.ReturnsAt = noon.Add(-35*time.Minute), noon.Add(-5*time.Minute)
	})
	w.add(testPool("default", "on-demand", p.Types), "c.16", classOf(t, testPod("y", 1000, 1024)), 1) // has room for its pod
	out := w.propose()
	for _, m := range out.Moves {
		if slices.Contains(m.Nodes, "node-0") {
			t.Errorf("it is emptied: %+v", m)
		}
	}
}

// What holds for every proposal holds where EC2 recommends to leave spot capacity, and nodes wait for it. (check has the rules.)
func TestProposalsAboutSpot(t *testing.T) {
	worlds := 200
	if testing.Short() {
		worlds = 60
	}
	moves, back, kinds := map[Reason]int{}, 0, map[Kind]int{}
	used := New()
	for seed := range uint64(worlds) {
		w := drawn(t, seed)
		w.shake(rand.New(rand.NewPCG(seed, 2)))
		p := w.propose()
		if again := used.Propose(w.view, w.candidates, w.options); !reflect.DeepEqual(p, again) {
			t.Errorf("another planner proposes something else:\n%+v\n%+v", p, again)
		}
		for i := range p.Moves {
			moves[p.Moves[i].Reason]++
			if w.returns(w.candidate(p.Moves[i].Nodes[0]), &p.Moves[i]) {
				back++
			}
		}
		for _, k := range p.Kept {
			kinds[k.Kind]++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if moves[RebalanceRecommended] < worlds/20 || back < worlds/40 || kinds[WantOfSpot] < worlds/20 {
		t.Errorf("%d moves for recommendations, %d returns, %d nodes wait for spot: this test makes the wrong worlds", moves[RebalanceRecommended], back, kinds[WantOfSpot])
	}
}

// shake lets all pools buy both kinds of capacity, of which some may not last, and has some nodes leave spot capacity or wait for it.
func (w *world) shake(r *rand.Rand) {
	for _, p := range w.view.Pools {
		for _, typ := range p.Types {
			for i := range typ.Offers {
				if o := &typ.Offers[i]; o.CapacityType == capacity.CapacityTypeSpot {
					o.Leaving, o.Unsettled, o.Available = r.IntN(4) == 0, r.IntN(3) == 0, r.IntN(6) > 0
				}
			}
		}
		p.Requirements = capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, "spot", "on-demand"))
		policy := w.options.Pools[p.Name]
		policy.Budgets[RebalanceRecommended] = r.IntN(4)
		w.options.Pools[p.Name] = policy
	}
	for i := range w.candidates {
		c := &w.candidates[i]
		switch {
		case c.CapacityType == capacity.CapacityTypeSpot && r.IntN(2) == 0:
			c.Forced, c.ForcedAt = RebalanceRecommended, noon.Add(-time.Duration(r.IntN(60))*time.Minute)
		case c.CapacityType == capacity.CapacityTypeOnDemand && c.Forced == "" && r.IntN(2) == 0:
			c.CreatedAt, c.ReturnsAt = noon.Add(-40*time.Minute), noon.Add(-time.Duration(r.IntN(25)-5)*time.Minute)
		}
	}
}
