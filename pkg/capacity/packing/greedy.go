package packing

import (
	"math"
	"slices"
)

// buy is the content of a bin and how often to buy it.
type buy struct {
	bin   int
	c     content // by kind
	times int
}

// state is a packing in progress, with what is left to pack.
type state struct {
	left    []int // by kind
	budgets []int64
	buys    []buy
	cost    float64
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

// affordable returns how often bin b can be bought within the budgets, at most n times.
func (s *state) affordable(p *Problem, b, n int) int {
	for _, u := range p.Bins[b].Uses {
		if u.Amount > 0 {
			n = int(min(int64(n), max(0, s.budgets[u.Budget]/u.Amount)))
		}
	}
	return n
}

// take buys x.
func (s *state) take(p *Problem, x buy) {
	for _, sh := range x.c {
		s.left[sh.Item] -= sh.Count * x.times
	}
	for _, u := range p.Bins[x.bin].Uses {
		s.budgets[u.Budget] -= u.Amount * int64(x.times)
	}
	s.buys = append(s.buys, x)
	s.cost += p.Bins[x.bin].Price * float64(x.times)
}

// repeats returns how often a whole content can be bought: what is left to pack must fill it.
func (s *state) repeats(p *Problem, b int, c content) int {
	n := math.MaxInt
	for _, sh := range c {
		n = min(n, s.left[sh.Item]/sh.Count)
	}
	return s.affordable(p, b, n)
}

// greedy repeatedly buys the bin whose content is worth most per dollar, as often as what is left fills that content. Towards the end
// bins get smaller by themselves, since less is left to fill them with.
type greedy struct {
	k        *kinds
	knapsack *knapsack
	// care is the care with which bins are filled while the knapsack's work is below until.
	care  care
	until int
	// hope is the most that a bin's content may be worth per dollar, from the last time the bin was filled. It stays an upper bound,
	// because what is left only gets less.
	hope []float64
}

func newGreedy(k *kinds, knapsack *knapsack, how care, until int) *greedy {
	return &greedy{k: k, knapsack: knapsack, care: how, until: until, hope: make([]float64, len(k.p.Bins))}
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
	g.knapsack.work += 20 * (len(order) + len(s.left))
	for s.remaining() > 0 {
		g.sort(order)
		g.knapsack.work += 2 * len(order)
		var best buy
		ratio := 0.0
		for _, b := range order {
			if g.hope[b] <= ratio || g.hope[b] == 0 {
				break
			}
			if s.affordable(g.k.p, b, 1) == 0 {
				g.hope[b] = 0
				continue
			}
			how := g.care
			if g.knapsack.work > g.until {
				how = cares[0]
			}
			c, worth, bound := g.knapsack.fill(b, s.left, value, how)
			price := math.Max(g.k.p.Bins[b].Price, 1e-9)
			g.hope[b] = bound / price
			if len(c) == 0 {
				g.hope[b] = 0
				continue
			}
			if r := worth / price; r > ratio*(1+1e-9) {
				ratio, best = r, buy{bin: b, c: c}
			}
		}
		if best.c == nil {
			return
		}
		best.times = s.repeats(g.k.p, best.bin, best.c)
		s.take(g.k.p, best)
	}
}

// sort puts the highest hope first; of equals the dearer bin, which means fewer bins. It sorts by insertion, since little changes between
// two calls.
func (g *greedy) sort(order []int) {
	for at := 1; at < len(order); at++ {
		b := order[at]
		to := at
		for ; to > 0; to-- {
			o := order[to-1]
			if g.hope[o] > g.hope[b] || g.hope[o] == g.hope[b] && (g.k.p.Bins[o].Price > g.k.p.Bins[b].Price || g.k.p.Bins[o].Price == g.k.p.Bins[b].Price && o < b) {
				break
			}
			order[to] = o
		}
		order[to] = b
	}
}
