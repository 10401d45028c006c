package packing

import (
	"slices"
)

// knapsack finds what to put into one bin: the most value, with at most left of each kind. It solves the linear
// relaxation over the dimensions and the plain joint rules, rounds it down, tops it up, and branches on what is broken for
// a while. It holds scratch space, so one goroutine uses it.
type knapsack struct {
	k     *kinds
	tally *tally
	// The program: items are the kinds considered, a its rows by item.
	items []int
	hi    []float64
	a     [][]float64
	b     []float64
	lp    bounded
	rows  []int // joint rules with a row
	x     []float64
	order []int
	eff   []float64
	room  []int64
	count []int // by kind, of the content being made
	best  []int
	bestV float64
	nodes int // left to visit of a search
	open  []*branch
	work  int
}

func newKnapsack(k *kinds) *knapsack {
	return &knapsack{k: k, tally: k.book.newTally(), count: make([]int, len(k.kinds)), best: make([]int, len(k.kinds)), eff: make([]float64, len(k.kinds))}
}

// content of a bin: how many of which kinds, by kind.
type content []Share

// care is how much is done for a better content than rounding gives: steps of a search, which finds balanced contents of
// few large things, and branches of the program, which does it for many small ones.
type care struct{ steps, branches int }

// cares are the levels of care, each several times as costly as the one before.
var cares = []care{{}, {60, 0}, {400, 10}, {3000, 60}, {20000, 400}}

// fill finds a valuable content of bin b. bound is a value that no content passes, by the relaxation.
func (s *knapsack) fill(b int, left []int, value []float64, how care) (c content, worth, bound float64) {
	s.prepare(b, left, value)
	if len(s.items) == 0 {
		return nil, 0, 0
	}
	bound = s.lp.solve(s.a, s.b, s.hi, s.values(value), &s.x)
	s.work += s.lp.work
	s.rank(value)
	s.bestV = -1
	s.round(b, value)
	if how.steps > 0 && s.bestV < bound*(1-1e-5) {
		s.search(b, value, how.steps)
	}
	if how.branches > 0 && s.bestV < bound*(1-1e-5) {
		bound = s.branch(b, value, bound, how.branches)
	}
	for _, i := range s.items {
		if s.best[i] > 0 {
			c = append(c, Share{Item: i, Count: s.best[i]})
			s.best[i] = 0
		}
	}
	return c, s.bestV, bound
}

func (s *knapsack) values(value []float64) []float64 {
	s.lp.c = s.lp.c[:0]
	for _, i := range s.items {
		s.lp.c = append(s.lp.c, value[i])
	}
	return s.lp.c
}

// prepare sets up the program of bin b.
func (s *knapsack) prepare(b int, left []int, value []float64) {
	k := s.k
	s.items, s.hi, s.rows = s.items[:0], s.hi[:0], s.rows[:0]
	for _, i := range k.fits[b] {
		if left[i] <= 0 || value[i] <= 0 {
			continue
		}
		n := Fits(k.p.Bins[b].Room, k.kinds[i].need, min(left[i], k.kinds[i].most))
		if n == 0 {
			continue
		}
		s.items = append(s.items, i)
		s.hi = append(s.hi, float64(n))
		for _, r := range k.kinds[i].joint {
			if !slices.Contains(s.rows, r) {
				s.rows = append(s.rows, r)
			}
		}
	}
	if len(s.rows) > 12 {
		s.rows = s.rows[:12] // the others are kept when rounding
	}
	m := len(k.dims) + len(s.rows)
	for len(s.a) < m {
		s.a = append(s.a, nil)
	}
	s.b = s.b[:0]
	for j := range k.dims {
		s.a[j] = s.a[j][:0]
		for _, i := range s.items {
			s.a[j] = append(s.a[j], k.kinds[i].size[j])
		}
		s.b = append(s.b, k.room(b, j))
	}
	for q, r := range s.rows {
		row := s.a[len(k.dims)+q][:0]
		for _, i := range s.items {
			v := 0.0
			if slices.Contains(k.kinds[i].joint, r) {
				v = 1
			}
			row = append(row, v)
		}
		s.a[len(k.dims)+q] = row
		s.b = append(s.b, float64(k.limit(r)))
	}
	s.work += (m + 2) * len(s.items)
}

// rank orders the items by value per cost of what they take, at the multipliers of the relaxation.
func (s *knapsack) rank(value []float64) {
	s.order = s.order[:0]
	for q, i := range s.items {
		cost := 1e-12
		for r := range s.b {
			cost += s.lp.mu[r] * s.a[r][q]
		}
		s.eff[i] = value[i] / cost
		s.order = append(s.order, q)
	}
	slices.SortFunc(s.order, func(a, b int) int {
		x, y := s.items[a], s.items[b]
		switch {
		case s.eff[x] > s.eff[y]*(1+1e-12):
			return -1
		case s.eff[x] < s.eff[y]*(1-1e-12):
			return 1
		case value[x] != value[y]: // of equals the larger first: the small ones fill what is left
			if value[x] > value[y] {
				return -1
			}
			return 1
		}
		return x - y
	})
	s.work += 8 * len(s.items)
}

// round makes a content of the relaxation: rounded down, then topped up in order of rank.
func (s *knapsack) round(b int, value []float64) {
	s.start(b)
	for _, q := range s.order {
		if n := int(s.x[q] + 1e-7); n > 0 {
			s.put(s.items[q], n)
		}
	}
	s.work += 2 * len(s.order)
	for _, q := range s.order {
		if n := int(s.hi[q]) - s.count[s.items[q]]; n > 0 {
			s.put(s.items[q], n)
		}
	}
	s.keep(value)
}

func (s *knapsack) start(b int) {
	s.room = append(s.room[:0], s.k.p.Bins[b].Room...)
	s.tally.reset()
	for _, i := range s.items {
		s.count[i] = 0
	}
}

// put adds up to n of a kind and returns how many went in.
func (s *knapsack) put(i, n int) int {
	x := &s.k.kinds[i]
	if n = Fits(s.room, x.need, n); n == 0 {
		return 0
	}
	it := x.items[0]
	if n = s.k.book.room(s.tally, it, n); n == 0 {
		return 0
	}
	Take(s.room, x.need, n)
	s.k.book.add(s.tally, it, n)
	s.count[i] += n
	return n
}

// keep remembers the content if it is the best so far.
func (s *knapsack) keep(value []float64) {
	v := 0.0
	for _, i := range s.items {
		v += value[i] * float64(s.count[i])
	}
	if v > s.bestV*(1+1e-12) {
		s.bestV = v
		for _, i := range s.items {
			s.best[i] = s.count[i]
		}
	}
}
