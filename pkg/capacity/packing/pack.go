package packing

import (
	"math"
	"slices"
)

// maxRows is the highest number of kinds for which the configuration program (program) is solved: the work grows with the square of that number,
// and with more kinds the greedy packing is nearly as good.
const maxRows = 400

// nearly: a packing that costs at most this fraction more than the lower bound is hardly improved by the
// configuration program. What could still be saved is in the last candidates that the packing buys, which aren't full.
const nearly = 0.01

// worthwhile is the fraction of its cost that a packing must have saved in a round for another round to be tried.
const worthwhile = 1e-4

// Quick is the effort for a packing that is needed at once, whatever it costs.
const Quick = -1

// Pack finds a cheap packing. effort is how much work may be done, in microseconds of typical work (perEffort); the fast path is done in any case.
// The same problem and effort give the same result.
//
//  1. Prices: a linear program over resources gives pieces a value.
//  2. Greedy packing under these values, and under others as long as that is cheap.
//  3. A linear program mixes the patterns found so far; its solution is rounded down and completed greedily.
//  4. With effort: more patterns are generated until nothing is gained, and mixed again.
//  5. With the work that is left, parts of the packing are undone and packed again.
func Pack(p *Problem, effort int) *Result {
	k := newKinds(p)
	if len(k.kinds) == 0 {
		return &Result{Left: make([]int, len(p.Items))}
	}
	w := newWorkBudget(k, effort)
	fluid, floors := k.known(p)
	if fluid == nil {
		fluid, floors = k.prices()
	}
	bound := k.worth(floors, k.counts())
	k.clip(fluid)
	values := k.views(fluid)
	best := k.apart()
	g := newGenerator(k, w)
	g.bound, g.floors = bound, floors
	for i, value := range values {
		if i > 0 && (w.left() < w.spent()/i || best.cost < bound*(1+nearly)) {
			break
		}
		s := k.newState()
		newGreedy(k, w, effortLevels[0], 0).run(s, value)
		for _, b := range s.buys {
			g.add(b.candidate, b.c)
		}
		if s.better(best) {
			best = s
		}
	}
	if effort == Quick {
		out := k.result(best, floors)
		out.Values = k.byItem(floors)
		return out
	}
	if rows := len(k.kinds); rows > maxRows || w.left() < rows*rows*rows/2 || best.cost < bound*(1+nearly) {
		best = k.recreate(w, g, best, values)
	} else {
		prog := g.program(k.newState().left)
		best = prog.mix(w, best, values, []float64{0}, 0, w.spent()+w.left()/2)
		centre := prog.multipliers()
		for w.left() > 0 {
			before := best.cost
			g.improve(prog, centre, w.left()*5/10)
			best = prog.mix(w, best, append(values, centre), []float64{0.6, 0.3, 0}, 2, w.spent()+w.left()/2)
			best = k.recreate(w, g, best, values)
			if best.cost >= before*(1-worthwhile) {
				break
			}
		}
	}
	out := k.result(best, g.floors)
	out.Effort, out.Values = w.spent()/perEffort, k.byItem(floors)
	return out
}

// mix rounds the solution of the linear program to whole packings and returns the best of them, or best if none is better. Each attempt
// takes one vector of the pieces' values (the program's multipliers first, then each of values) and one of ups. It adds the up to each
// pattern's number in the solution, rounds that down, and packs the remaining pieces greedily by these values, with effortLevels[level].
// The first attempt always runs; no further one begins once w.spent() is above until.
func (p *program) mix(w *workBudget, best *state, values [][]float64, ups []float64, level, until int) *state {
	k := p.g.k
	p.extend()
	p.lp.solve(min(maxProgram, max(0, w.left())))
	first := true
	for _, value := range append([][]float64{p.multipliers()}, values...) {
		k.clip(value)
		for _, up := range ups {
			if !first && w.spent() > until {
				return best
			}
			first = false
			s := k.newState()
			p.whole(s, up)
			newGreedy(k, w, effortLevels[level], until).run(s, value)
			for _, b := range s.buys {
				p.g.add(b.candidate, b.c)
			}
			if s.better(best) {
				best = s
			}
		}
	}
	return best
}

// known returns the values and floors that the problem gives; nil: it doesn't give all.
func (k *kinds) known(p *Problem) (values, floors []float64) {
	for i := range k.kinds {
		it := &p.Items[k.kinds[i].items[0]]
		if it.Value <= 0 {
			return nil, nil
		}
		values, floors = append(values, it.Value), append(floors, it.Floor)
	}
	return values, floors
}

// views returns three estimates of what a piece of each kind is worth: the given ones, which a linear program has found (prices), its share of the
// price of a candidate (kind.share), and the mean of both.
func (k *kinds) views(fluid []float64) [][]float64 {
	share, mean := make([]float64, len(fluid)), make([]float64, len(fluid))
	for i := range share {
		share[i] = k.kinds[i].share
		mean[i] = (share[i] + fluid[i]) / 2
	}
	return [][]float64{fluid, share, mean}
}

// better reports whether a packing leaves fewer pieces over or, if as many, costs less.
func (s *state) better(than *state) bool {
	if a, b := s.remaining(), than.remaining(); a != b {
		return a < b
	}
	return s.cost < than.cost*(1-1e-12)
}

// clip keeps values between half of a piece's share of the cheapest candidate and the price of the cheapest candidate that holds it. Values
// that are a linear program's multipliers may be zero, or anything where only scarce candidates hold a piece.
func (k *kinds) clip(value []float64) {
	for i := range k.kinds {
		x := &k.kinds[i]
		if math.IsInf(x.alone, 1) {
			value[i] = 0
			continue
		}
		value[i] = math.Min(math.Max(value[i], math.Max(x.share/2, 1e-9)), math.Max(x.alone, 1e-9))
	}
}

// apart returns the simplest packing: each piece alone in the cheapest candidate that holds it. Pack returns it unless it finds a better one.
func (k *kinds) apart() *state {
	s := k.newState()
	for i := range k.kinds {
		for s.left[i] > 0 {
			best := -1
			for b := range k.p.Candidates {
				if k.kinds[i].candidates.Has(b) && Fits(k.p.Candidates[b].Room, k.kinds[i].need, 1) > 0 && s.affordable(k.p, b, 1) > 0 &&
					(best < 0 || k.p.Candidates[b].Price < k.p.Candidates[best].Price) {
					best = b
				}
			}
			if best < 0 {
				break
			}
			c := pattern{{Item: i, Count: 1}}
			s.take(k.p, buy{best, c, s.repeats(k.p, best, c)})
		}
	}
	return s
}

// byItem returns the values of kinds by item; nil without values.
func (k *kinds) byItem(values []float64) []float64 {
	if values == nil {
		return nil
	}
	out := make([]float64, len(k.p.Items))
	for i := range k.kinds {
		for _, it := range k.kinds[i].items {
			out[it] = values[i]
		}
	}
	return out
}

// result splits kinds into items again. Pieces that found no place cost nothing, so the bound leaves them out.
func (k *kinds) result(s *state, floors []float64) *Result {
	out := &Result{Cost: s.cost, Bound: k.boundWithout(s.left, floors), Left: make([]int, len(k.p.Items))}
	for i := range k.p.Items {
		out.Left[i] = k.p.Items[i].Count
	}
	at := make([]int, len(k.kinds)) // the item of each kind that is being assigned
	for _, b := range s.buys {
		for times := b.times; times > 0; {
			shares, n := k.assign(b.c, at, out.Left, times)
			out.Loads = append(out.Loads, Load{Candidate: b.candidate, Shares: shares, Times: n})
			times -= n
		}
	}
	return out
}

// boundWithout returns a lower bound for the cost of the pieces that are placed; 0: unknown. The floors hold for any number of pieces. If
// pieces are left over that candidates could hold, because budgets are spent, prices for the placed pieces alone may give a higher bound.
func (k *kinds) boundWithout(left []int, floors []float64) float64 {
	placed, less := k.counts(), false
	for i, n := range left {
		placed[i] -= n
		less = less || n > 0 && !math.IsInf(k.kinds[i].alone, 1)
	}
	bound := k.worth(floors, placed)
	if !less {
		return bound
	}
	rest := *k.p
	rest.Items = slices.Clone(k.p.Items)
	for i := range k.kinds {
		n := left[i]
		for _, it := range slices.Backward(k.kinds[i].items) { // assign takes items in order, so the last ones are left
			take := min(n, rest.Items[it].Count)
			rest.Items[it].Count -= take
			n -= take
		}
	}
	other := newKinds(&rest)
	if len(other.kinds) == 0 {
		return 0
	}
	_, floors = other.prices()
	return math.Max(bound, other.worth(floors, other.counts()))
}

// assign takes the pieces of one pattern from the kinds' items, in order, and returns them as shares of these items. If enough of the same
// items is left, the same shares are taken for more candidates; it returns for how many in all, at most times.
func (k *kinds) assign(c pattern, at, left []int, times int) ([]Share, int) {
	var shares []Share
	for _, sh := range c {
		items := k.kinds[sh.Item].items
		for n := sh.Count; n > 0; {
			it := items[at[sh.Item]]
			if left[it] == 0 {
				at[sh.Item]++
				continue
			}
			take := min(n, left[it])
			left[it] -= take
			n -= take
			if last := len(shares) - 1; last >= 0 && shares[last].Item == it {
				shares[last].Count += take
			} else {
				shares = append(shares, Share{Item: it, Count: take})
			}
		}
	}
	n := times - 1
	for _, sh := range shares {
		n = min(n, left[sh.Item]/sh.Count)
	}
	for _, sh := range shares {
		left[sh.Item] -= sh.Count * n
	}
	slices.SortFunc(shares, func(a, b Share) int { return a.Item - b.Item })
	return shares, n + 1
}
