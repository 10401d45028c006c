package packing

import (
	"math"
	"slices"
)

// branch is a subset of the patterns: those with at least lo and at most hi pieces of each item. x is the solution of the subset's linear
// program, which may take fractions of pieces; no pattern of the subset is worth more than bound. lo, hi and x are by position in knapsack.items.
type branch struct {
	lo, hi, x []float64
	bound     float64
}

// branch searches subsets of the patterns, the one with the highest bound first. It splits each in two at an item of which the subset's linear
// program takes a fractional number of pieces: 2.4 of them, say, become at most 2 or at least 3. It returns an upper bound for all patterns' values.
func (s *knapsack) branch(b int, value []float64, bound float64, steps int) float64 {
	n := len(s.items)
	s.open = append(s.open[:0], &branch{lo: make([]float64, n), hi: slices.Clone(s.hi), x: slices.Clone(s.x), bound: bound})
	whole := s.hi
	defer func() { s.hi = whole }()
	for len(s.open) > 0 && steps > 0 {
		at := 0
		for i, o := range s.open {
			if o.bound > s.open[at].bound {
				at = i
			}
		}
		top := s.open[at]
		s.open[at] = s.open[len(s.open)-1]
		s.open = s.open[:len(s.open)-1]
		if top.bound <= s.bestV*(1+1e-6) {
			return math.Max(top.bound, s.bestV)
		}
		q := broken(top.x)
		if q < 0 {
			return top.bound // all numbers are whole, but rounding did not give this pattern: the rules forbid it
		}
		for _, up := range []bool{false, true} {
			next := &branch{lo: top.lo, hi: top.hi}
			if up {
				next.lo = slices.Clone(top.lo)
				next.lo[q] = math.Ceil(top.x[q])
			} else {
				next.hi = slices.Clone(top.hi)
				next.hi[q] = math.Floor(top.x[q])
			}
			steps--
			if s.relax(next, value) {
				next.bound = math.Min(next.bound, top.bound)
				s.hi, s.x = next.hi, append(s.x[:0], next.x...)
				s.round(b, value)
				if next.bound > s.bestV*(1+1e-6) {
					s.open = append(s.open, next)
				}
			}
		}
	}
	if len(s.open) == 0 {
		return s.bestV
	}
	bound = s.bestV
	for _, o := range s.open {
		bound = math.Max(bound, o.bound)
	}
	return bound
}

// broken returns the position whose value is farthest from a whole number, or -1 if all are whole.
func broken(x []float64) int {
	at, far := -1, 1e-6
	for q, v := range x {
		if f := v - math.Floor(v); math.Min(f, 1-f) > far {
			at, far = q, math.Min(f, 1-f)
		}
	}
	return at
}

// relax solves a branch's linear program. It returns false if there is no solution.
func (s *knapsack) relax(o *branch, value []float64) bool {
	b := make([]float64, len(s.b))
	hi := make([]float64, len(s.items))
	sum := 0.0
	for r := range b {
		b[r] = s.b[r]
		for q, lo := range o.lo {
			if lo > 0 {
				b[r] -= lo * s.a[r][q]
			}
		}
		if b[r] < -1e-9 {
			return false
		}
	}
	for q, i := range s.items {
		hi[q] = o.hi[q] - o.lo[q]
		sum += o.lo[q] * value[i]
	}
	o.bound = sum + s.lp.solve(s.a, b, hi, s.values(value), &o.x)
	s.work += s.lp.work
	for q := range o.x {
		o.x[q] += o.lo[q]
	}
	return true
}
