package packing

import (
	"math"
	"slices"
)

// buy is the pattern of a candidate and how often to buy it.
type buy struct {
	candidate int
	c         pattern // by kind
	times     int
}

// state is a packing in progress, with what is left to pack.
type state struct {
	left    []int   // by kind: how many pieces are left to pack
	budgets []int64 // what is left of each budget
	buys    []buy
	cost    float64 // in dollars
}

func (k *kinds) newState() *state {
	s := &state{left: make([]int, len(k.kinds)), budgets: slices.Clone(k.p.Budgets)}
	for i := range k.kinds {
		s.left[i] = k.kinds[i].count
	}
	return s
}

func (s *state) remaining() int {
	n := 0
	for _, v := range s.left {
		n += v
	}
	return n
}

// affordable returns how often candidate b can be bought within the budgets, at most n times.
func (s *state) affordable(p *Problem, b, n int) int {
	for _, u := range p.Candidates[b].Uses {
		if u.Amount > 0 {
			n = int(min(int64(n), max(0, s.budgets[u.Budget]/u.Amount)))
		}
	}
	return n
}

// take adds x to the packing, and subtracts its pieces and what it uses from what is left.
func (s *state) take(p *Problem, x buy) {
	for _, sh := range x.c {
		s.left[sh.Item] -= sh.Count * x.times
	}
	for _, u := range p.Candidates[x.candidate].Uses {
		s.budgets[u.Budget] -= u.Amount * int64(x.times)
	}
	s.buys = append(s.buys, x)
	s.cost += p.Candidates[x.candidate].Price * float64(x.times)
}

// repeats returns how often candidate b can be bought with the whole of pattern c: pieces for it must be left, and budgets must allow it.
func (s *state) repeats(p *Problem, b int, c pattern) int {
	n := math.MaxInt
	for _, sh := range c {
		n = min(n, s.left[sh.Item]/sh.Count)
	}
	return s.affordable(p, b, n)
}

// greedy repeatedly buys the candidate whose pattern is worth most per dollar, as often as what is left fills that pattern. Towards the end it
// buys smaller candidates by itself, since too little is left to fill large ones.
type greedy struct {
	k          *kinds
	workBudget *workBudget
	// effortLevel is how candidates are filled while the work spent is below until; after that, the lowest level is used.
	effortLevel effortLevel
	until       int
	// hope is, by candidate, the most that its pattern may be worth per dollar, from the last time the candidate was filled. It stays an upper bound,
	// because what is left only gets less.
	hope []float64
}

// worthFilling: a candidate is filled only if it may be worth this fraction more per dollar than the best one so far. Values come from a linear
// program, in which many candidates are worth just what they cost: looking for the best of these takes most of the work and gains nothing.
const worthFilling = 0.003

func newGreedy(k *kinds, w *workBudget, how effortLevel, until int) *greedy {
	return &greedy{k: k, workBudget: w, effortLevel: how, until: until, hope: make([]float64, len(k.p.Candidates))}
}

// run completes the packing. value is the value of a piece in dollars, by kind.
func (g *greedy) run(s *state, value []float64) {
	for b := range g.hope {
		g.hope[b] = math.Inf(1)
		if len(g.k.fits[b]) == 0 {
			g.hope[b] = 0
		}
	}
	order := make([]int, len(g.hope))
	for b := range order {
		order[b] = b
	}
	g.workBudget.knapsack.work += 20 * (len(order) + len(s.left))
	for s.remaining() > 0 {
		g.sort(order)
		g.workBudget.knapsack.work += 2 * len(order)
		var best buy
		ratio := 0.0
		for _, b := range order {
			if g.hope[b] <= ratio*(1+worthFilling) || g.hope[b] == 0 {
				break
			}
			if s.affordable(g.k.p, b, 1) == 0 {
				g.hope[b] = 0
				continue
			}
			how := g.effortLevel
			if g.workBudget.spent() > g.until {
				how = effortLevels[0]
			}
			c, worth, bound := g.workBudget.knapsack.fill(b, s.left, value, how)
			price := math.Max(g.k.p.Candidates[b].Price, 1e-9)
			g.hope[b] = bound / price
			if len(c) == 0 {
				g.hope[b] = 0
				continue
			}
			if r := worth / price; r > ratio*(1+1e-9) {
				ratio, best = r, buy{candidate: b, c: c}
			}
		}
		if best.c == nil {
			return
		}
		best.times = s.repeats(g.k.p, best.candidate, best.c)
		s.take(g.k.p, best)
	}
}

// sort puts the highest hope first, and of equals the dearer candidate: it is larger, so that fewer are bought. It sorts by insertion, since little
// changes between two calls.
func (g *greedy) sort(order []int) {
	for at := 1; at < len(order); at++ {
		b := order[at]
		to := at
		for ; to > 0; to-- {
			o := order[to-1]
			if g.hope[o] > g.hope[b] || g.hope[o] == g.hope[b] && (g.k.p.Candidates[o].Price > g.k.p.Candidates[b].Price || g.k.p.Candidates[o].Price == g.k.p.Candidates[b].Price && o < b) {
				break
			}
			order[to] = o
		}
		order[to] = b
	}
}
