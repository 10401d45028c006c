package packing

import (
	"math/rand/v2"
	"slices"
)

// maxVain is how many attempts in a row may find nothing better before recreate stops.
const maxVain = 200

// recreate undoes parts of a packing, packs them again, and keeps what is cheaper, as long as there is work left (ruin and recreate). It
// undoes some of the candidates whose pattern is worth least per dollar, and others at random, with the same seed every time.
func (k *kinds) recreate(w *workBudget, g *generator, s *state, values [][]float64) *state {
	chance := rand.New(rand.NewPCG(1, 2))
	value := values[0]
	vain := 0
	for round := 0; w.left() > 0 && vain < maxVain; round++ {
		before := w.spent()
		w.knapsack.work += 40*len(s.buys) + 30*len(k.kinds) + 200*len(k.p.Candidates)
		next := s.without(k.p, s.pick(k, value, chance))
		if next == nil {
			return s
		}
		trial := perturbed(values[round%len(values)], chance, round)
		newGreedy(k, w, effortLevels[1+round%2], w.end).run(next, trial)
		vain++
		if next.better(s) {
			s, vain = next, 0
			for _, b := range s.buys {
				g.add(b.candidate, b.c)
			}
		}
		if w.spent() == before {
			return s // no work was done: the packing is empty
		}
	}
	return s
}

// perturbed changes values a little at random, except in the first rounds.
func perturbed(value []float64, chance *rand.Rand, round int) []float64 {
	out := slices.Clone(value)
	if round < 3 {
		return out
	}
	for i := range out {
		out[i] *= 0.9 + 0.2*chance.Float64()
	}
	return out
}

// pick chooses candidates to undo and returns how many of each buy. The less a candidate's pattern is worth per dollar, the likelier it is chosen.
// After the first, candidates are likelier that could hold pieces of it, or it theirs: with a candidate of another zone, say, it can't be merged.
func (s *state) pick(k *kinds, value []float64, chance *rand.Rand) []int {
	weights, candidates := make([]float64, len(s.buys)), 0
	for i, b := range s.buys {
		waste := 1 - b.c.worth(value)/max(k.p.Candidates[b.candidate].Price, 1e-9)
		weights[i] = max(waste, 0.02)
		candidates += b.times
	}
	out := make([]int, len(s.buys))
	first := s.draw(weights, out, chance)
	if first < 0 {
		return out
	}
	for i := range weights {
		weights[i] *= 0.02 + k.shared(s.buys[i], s.buys[first], value) + k.shared(s.buys[first], s.buys[i], value)
	}
	for range min(1+chance.IntN(9), candidates-1) {
		s.draw(weights, out, chance)
	}
	return out
}

// draw adds one candidate at random, by the weights of the buys, to those that are chosen, and returns its buy; -1: all are chosen.
func (s *state) draw(weights []float64, chosen []int, chance *rand.Rand) int {
	sum := 0.0
	for i, w := range weights {
		sum += w * float64(s.buys[i].times-chosen[i])
	}
	at := chance.Float64() * sum
	for i := range weights {
		w := weights[i] * float64(s.buys[i].times-chosen[i])
		if at -= w; at < 0 && w > 0 {
			chosen[i]++
			return i
		}
	}
	return -1
}

// shared returns which part of a candidate's pieces, by value, may go into the other candidate, from 0 to 1.
func (k *kinds) shared(of, with buy, value []float64) float64 {
	part := 0.0
	for _, sh := range of.c {
		if k.kinds[sh.Item].candidates.Has(with.candidate) {
			part += value[sh.Item] * float64(sh.Count)
		}
	}
	return part / max(of.c.worth(value), 1e-9)
}

// worth returns the sum of the values of the pattern's pieces.
func (c pattern) worth(value []float64) float64 {
	sum := 0.0
	for _, sh := range c {
		sum += value[sh.Item] * float64(sh.Count)
	}
	return sum
}

// without returns the packing without that many candidates of each buy, or nil if nothing is undone.
func (s *state) without(p *Problem, undo []int) *state {
	out := &state{left: slices.Clone(s.left), budgets: slices.Clone(s.budgets)}
	some := false
	for i, b := range s.buys {
		some = some || undo[i] > 0
		for _, sh := range b.c {
			out.left[sh.Item] += sh.Count * undo[i]
		}
		for _, u := range p.Candidates[b.candidate].Uses {
			out.budgets[u.Budget] += u.Amount * int64(undo[i])
		}
		if b.times -= undo[i]; b.times > 0 {
			out.buys = append(out.buys, b)
			out.cost += p.Candidates[b.candidate].Price * float64(b.times)
		}
	}
	if !some {
		return nil
	}
	return out
}
