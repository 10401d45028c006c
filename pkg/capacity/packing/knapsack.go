package packing

import (
	"slices"
)

// knapsack finds the most valuable pattern for one candidate, with at most left pieces of each kind. It solves a linear program
// that may take fractions of pieces (the relaxation), with a row for each dimension and each joint rule, rounds its solution down, tops it up, and
// then, depending on the effortLevel, searches for better patterns (search, branch). It holds scratch memory, so only one goroutine may use it.
type knapsack struct {
	k     *kinds
	tally *tally
	// The linear program. Its variables, the items, are kinds: those that fit the candidate, have pieces left and are worth something.
	items []int
	hi    []float64   // by position in items: how many pieces a pattern may have of it
	a     [][]float64 // by row, then by position in items: what a piece takes of the row
	b     []float64   // by row: how much there is of it
	lp    bounded
	rows  []int     // joint rules that have a row, in the order of their rows, which come after those of the dimensions
	rowOf []int     // by rule: position in rows, -1: it has no row
	x     []float64 // the solution, by position in items: number of pieces
	order []int     // positions in items, by rank
	eff   []float32 // by position in items: value of a piece divided by the cost of the capacity that it takes (rank)
	// ranked is, by candidate, the last ranking of the kinds that fit it, as positions in fits: the next ranking hardly differs.
	ranked [][]int
	// at are the items' positions in fits, absent those of the kinds that fit the candidate but aren't among the items.
	at, absent []int
	room       []int64   // free capacity, by position in dims
	count      []int     // by kind: pieces in the pattern being made
	best       []int     // by kind: pieces in the best pattern so far
	bestV      float64   // value of the best pattern so far
	nodes      int       // steps that a search has left
	open       []*branch // subsets of the patterns that branch has still to search
	work       int       // all work done by this knapsack (workBudget)
}

func newKnapsack(k *kinds) *knapsack {
	s := &knapsack{k: k, tally: k.book.newTally(), count: make([]int, len(k.kinds)), best: make([]int, len(k.kinds)), ranked: make([][]int, len(k.p.Candidates)),
		rowOf: make([]int, len(k.p.Rules))}
	for r := range s.rowOf {
		s.rowOf[r] = -1
	}
	return s
}

// pattern is what one candidate holds; the Item of a Share is a kind here.
type pattern []Share

// effortLevel limits what is done to improve on the rounded pattern: the steps of search, which is good at patterns of few large pieces, and
// the subsets of patterns that branch looks at, which is good at those of many small pieces.
type effortLevel struct{ steps, branches int }

// effortLevels are the levels from which the caller chooses; each costs several times as much work as the one before.
var effortLevels = []effortLevel{{}, {60, 0}, {400, 10}, {3000, 60}, {20000, 400}}

// fill finds a valuable pattern of candidate b, and what it is worth. No pattern of this candidate is worth more than bound.
func (s *knapsack) fill(b int, left []int, value []float64, how effortLevel) (c pattern, worth, bound float64) {
	s.prepare(b, left, value)
	if len(s.items) == 0 {
		return nil, 0, 0
	}
	bound = s.lp.solve(s.a, s.b, s.hi, s.values(value), &s.x)
	s.work += s.lp.work
	s.rank(value)
	s.remember(b)
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

// maxJoint limits the rows for joint rules. Rules without a row are enforced only when pieces are put into a pattern.
const maxJoint = 12

// prepare sets up the program of candidate b, with its items in the order of the last ranking.
func (s *knapsack) prepare(b int, left []int, value []float64) {
	k := s.k
	for _, r := range s.rows {
		s.rowOf[r] = -1
	}
	s.items, s.hi, s.rows, s.at, s.absent = s.items[:0], s.hi[:0], s.rows[:0], s.at[:0], s.absent[:0]
	fits, caps := k.fits[b], k.caps[b]
	if s.ranked[b] == nil {
		s.ranked[b] = make([]int, len(fits))
		for at := range fits {
			s.ranked[b][at] = at
		}
	}
	for _, at := range s.ranked[b] {
		i := fits[at]
		n := min(left[i], caps[at])
		if n <= 0 || value[i] <= 0 {
			s.absent = append(s.absent, at)
			continue
		}
		s.items = append(s.items, i)
		s.at = append(s.at, at)
		s.hi = append(s.hi, float64(n))
		for _, r := range k.kinds[i].joint {
			if s.rowOf[r] < 0 && len(s.rows) < maxJoint {
				s.rowOf[r] = len(s.rows)
				s.rows = append(s.rows, r)
			}
		}
	}
	dims, m := len(k.dims), len(k.dims)+len(s.rows)
	for len(s.a) < m {
		s.a = append(s.a, nil)
	}
	for r := range m {
		s.a[r] = resize(s.a[r], len(s.items))
	}
	s.b = s.b[:0]
	for j := range dims {
		row := s.a[j]
		for q, i := range s.items {
			row[q] = k.kinds[i].size[j]
		}
		s.b = append(s.b, k.room(b, j))
	}
	for q := range s.rows {
		clear(s.a[dims+q])
		s.b = append(s.b, float64(k.limit(s.rows[q])))
	}
	if len(s.rows) > 0 {
		for q, i := range s.items {
			for _, r := range k.kinds[i].joint {
				if row := s.rowOf[r]; row >= 0 {
					s.a[dims+row][q] = 1
				}
			}
		}
	}
	s.work += (m + 2) * len(s.items)
}

// rank sorts the items by value divided by the cost of the capacity they take; the relaxation's multipliers are the prices of that
// capacity. Of items with the same ratio the larger comes first, because small ones still fit into gaps later. To make nearly equal items
// equal, the ratio is rounded to float32.
func (s *knapsack) rank(value []float64) {
	s.order, s.eff = s.order[:0], s.eff[:0]
	for q, i := range s.items {
		cost := 1e-12
		for r := range s.b {
			cost += s.lp.mu[r] * s.a[r][q]
		}
		s.eff = append(s.eff, float32(value[i]/cost))
		s.order = append(s.order, q)
	}
	before := func(p, q int) bool {
		if s.eff[p] != s.eff[q] {
			return s.eff[p] > s.eff[q]
		}
		x, y := s.items[p], s.items[q]
		if value[x] != value[y] {
			return value[x] > value[y]
		}
		return x < y
	}
	// Insertion sort is fastest where little has changed.
	moves := 0
	for at := 1; at < len(s.order) && moves < 16*len(s.order); at++ {
		q := s.order[at]
		to := at
		for ; to > 0 && before(q, s.order[to-1]); to-- {
			s.order[to] = s.order[to-1]
		}
		s.order[to] = q
		moves += at - to
	}
	if moves >= 16*len(s.order) {
		slices.SortFunc(s.order, func(p, q int) int {
			if before(p, q) {
				return -1
			}
			return 1
		})
	}
	s.work += 4*len(s.items) + moves
}

// remember keeps the ranking for the next time the candidate is filled.
func (s *knapsack) remember(b int) {
	ranked := s.ranked[b][:0]
	for _, q := range s.order {
		ranked = append(ranked, s.at[q])
	}
	s.ranked[b] = append(ranked, s.absent...)
}

// round makes a pattern from the relaxation: rounded down, then topped up in order of rank.
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
	s.room = append(s.room[:0], s.k.rooms[b]...)
	s.tally.reset()
	for _, i := range s.items {
		s.count[i] = 0
	}
}

// put adds up to n pieces of a kind and returns how many it added.
func (s *knapsack) put(i, n int) int {
	x := &s.k.kinds[i]
	for d, need := range x.needs {
		if need > s.room[d] { // most often nothing fits at all, and that needs no division
			return 0
		}
	}
	if n > 1 {
		n = Fits(s.room, x.needs, n)
	}
	it := x.items[0]
	if n = s.k.book.room(s.tally, it, n); n == 0 {
		return 0
	}
	Take(s.room, x.needs, n)
	s.k.book.add(s.tally, it, n)
	s.count[i] += n
	return n
}

// keep remembers the pattern if it is the best so far.
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
