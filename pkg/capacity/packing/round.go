package packing

import (
	"slices"
)

// whole buys each pattern of a solved program as often as its solution says. The number is rounded down once up (0 to 1) has been added: up
// says how readily it is rounded up instead.
func (p *program) whole(s *state, up float64) {
	type part struct {
		x buy
		n int
	}
	var parts []part
	for r, id := range p.lp.basis {
		if id < p.lp.m {
			continue // a surplus column, or a start column, whose pattern is in the pool as well
		}
		x := p.g.pool[p.id[id-p.lp.m]]
		if n := int(p.lp.x[r] + 1e-6 + up); n > 0 {
			parts = append(parts, part{x, n})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return b.n - a.n })
	for _, q := range parts {
		if n := min(q.n, s.repeats(p.g.k.p, q.x.candidate, q.x.c)); n > 0 {
			s.take(p.g.k.p, buy{q.x.candidate, q.x.c, n})
		}
	}
}
