package packing

import (
	"math"
)

// search tries patterns depth first, items in order of rank, most pieces first. It skips patterns that can't be better than the best one so far:
// free capacity, at the prices that the linear program gives it (lp.mu), limits what further items can add.
func (s *knapsack) search(b int, value []float64, steps int) {
	s.nodes = steps
	s.start(b)
	// gain is, by position in order, the most that the items from there on can be worth beyond the cost, at these prices, of the capacity they take.
	gain := make([]float64, len(s.order)+1)
	for at := len(s.order) - 1; at >= 0; at-- {
		q := s.order[at]
		over := value[s.items[q]]
		for r := range s.b {
			over -= s.lp.mu[r] * s.a[r][q]
		}
		gain[at] = gain[at+1] + math.Max(0, over)*s.hi[q]
	}
	rest := 0.0
	for r, v := range s.b {
		rest += s.lp.mu[r] * v
	}
	s.dive(0, 0, rest, gain, value)
	s.work += 50 * (steps - s.nodes)
}

func (s *knapsack) dive(at int, v, rest float64, gain, value []float64) {
	if s.nodes--; s.nodes < 0 {
		return
	}
	if at == len(s.order) {
		if v > s.bestV*(1+1e-12) {
			s.bestV = v
			for _, i := range s.items {
				s.best[i] = s.count[i]
			}
		}
		return
	}
	if v+rest+gain[at] <= s.bestV*(1+1e-9) {
		return
	}
	q := s.order[at]
	i := s.items[q]
	cost := 0.0
	for r := range s.b {
		cost += s.lp.mu[r] * s.a[r][q]
	}
	most := s.put(i, int(s.hi[q]))
	for n := most; ; n-- {
		s.dive(at+1, v+float64(n)*value[i], rest-float64(n)*cost, gain, value)
		if n == 0 || s.nodes < 0 {
			if n > 0 {
				s.takeOut(i, n)
			}
			return
		}
		s.takeOut(i, 1)
	}
}

// takeOut undoes put.
func (s *knapsack) takeOut(i, n int) {
	x := &s.k.kinds[i]
	for d, v := range x.needs {
		if s.room[d] != Unlimited {
			s.room[d] += v * int64(n)
		}
	}
	s.count[i] -= n
	if it := x.items[0]; len(s.k.book.byItem[it]) > 0 {
		// A rule's limit is the lowest among the kinds on the node that set one. This kind has left the node: look for the lowest again.
		for _, e := range s.k.book.byItem[it] {
			if e.member {
				s.tally.members[e.rule] -= n
			}
			if e.limit >= 0 && s.count[i] == 0 {
				s.tally.limit[e.rule] = -1
				for _, j := range s.items {
					if s.count[j] == 0 {
						continue
					}
					for _, o := range s.k.book.byItem[s.k.kinds[j].items[0]] {
						if o.rule == e.rule && o.limit >= 0 && (s.tally.limit[e.rule] < 0 || o.limit < s.tally.limit[e.rule]) {
							s.tally.limit[e.rule] = o.limit
						}
					}
				}
			}
		}
	}
}
