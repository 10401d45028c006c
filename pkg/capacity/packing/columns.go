package packing

import (
	"encoding/binary"
	"math"
	"slices"
)

// generator finds patterns for the configuration program, the linear program that decides how often to buy each pattern (program). A column of
// the program is one candidate with all that it holds. Its solution implies what a piece of each kind costs (its multipliers); the generator
// fills candidates for the highest value at these prices, and adds patterns that are worth more than their candidate costs. This is column
// generation, by Gilmore and Gomory.
type generator struct {
	k          *kinds
	workBudget *workBudget
	// pool are the patterns found so far; seen keeps duplicates out.
	pool []buy
	seen map[string]bool
	// near tells, by candidate, whether its pattern was worth nearly as much per dollar as the best one when all candidates were last filled.
	// Three of four rounds fill only these candidates first.
	near  []bool
	round int // number of calls of price so far
	// level is the index in effortLevels with which candidates are filled; it rises when nothing is found.
	level int
	// end is the amount of work at which improve stops.
	end int
	// bound is the highest lower bound found so far for the cost of packing all pieces, in dollars. floors are the values of a piece, by kind,
	// that add up to it: by these values, no candidate can hold pieces that are worth more than the candidate costs.
	bound  float64
	floors []float64
}

func newGenerator(k *kinds, w *workBudget) *generator {
	return &generator{k: k, workBudget: w, level: 0, seen: map[string]bool{}, near: make([]bool, len(k.p.Candidates))}
}

// add remembers a pattern. It returns false if the pattern was known.
func (g *generator) add(b int, c pattern) bool {
	key := binary.AppendUvarint(nil, uint64(b))
	for _, s := range c {
		key = binary.AppendUvarint(key, uint64(s.Item))
		key = binary.AppendUvarint(key, uint64(s.Count))
	}
	if g.seen[string(key)] {
		return false
	}
	g.seen[string(key)] = true
	g.pool = append(g.pool, buy{candidate: b, c: c})
	return true
}

// program is the configuration program for what is left to pack, over the patterns in the pool.
type program struct {
	g    *generator
	lp   *coveringLP
	row  []int // row of each kind; -1: it has none, since nothing is left of the kind, or no candidate holds it
	kind []int // kind of each row
	used int   // how many patterns of the pool extend has looked at: the first ones
	id   []int // by column, after the start columns (one for each row): index of its pattern in the pool
	left []int // by kind: how many pieces are left to pack
}

func (g *generator) program(left []int) *program {
	p := &program{g: g, row: make([]int, len(left)), left: left}
	var need []float64
	var start []column
	for i, n := range left {
		p.row[i] = -1
		if n == 0 {
			continue
		}
		b, count := g.plain(i, n)
		if b < 0 {
			continue
		}
		p.row[i] = len(p.kind)
		start = append(start, column{rows: []int32{int32(len(p.kind))}, vals: []float64{float64(count)}, price: g.k.p.Candidates[b].Price})
		p.kind = append(p.kind, i)
		need = append(need, float64(n))
		g.add(b, pattern{{Item: i, Count: count}})
	}
	p.lp = newCoveringLP(need, start)
	g.workBudget.lps = append(g.workBudget.lps, p.lp)
	p.extend()
	return p
}

// plain returns the candidate that holds pieces of one kind alone at the lowest price per piece, and how many it holds.
func (g *generator) plain(i, left int) (candidate, count int) {
	candidate = -1
	best := math.Inf(1)
	for b := range g.k.p.Candidates {
		if !g.k.kinds[i].candidates.Has(b) || g.k.p.Candidates[b].Scarce {
			continue
		}
		n := Fits(g.k.p.Candidates[b].Room, g.k.kinds[i].need, min(left, g.k.kinds[i].most))
		if n == 0 {
			continue
		}
		if each := g.k.p.Candidates[b].Price / float64(n); each < best {
			best, candidate, count = each, b, n
		}
	}
	return candidate, count
}

// extend adds columns for the patterns that are new in the pool, cut to what is left to pack.
func (p *program) extend() {
	for ; p.used < len(p.g.pool); p.used++ {
		x := &p.g.pool[p.used]
		col := column{price: p.g.k.p.Candidates[x.candidate].Price}
		for _, s := range x.c {
			if r := p.row[s.Item]; r >= 0 {
				col.rows = append(col.rows, int32(r))
				col.vals = append(col.vals, float64(min(s.Count, p.left[s.Item])))
			}
		}
		if len(col.rows) == 0 {
			continue
		}
		p.lp.add(col)
		p.id = append(p.id, p.used)
	}
}

// multipliers returns, by kind, what a piece more would add to the cost of the program's solution.
func (p *program) multipliers() []float64 {
	out := make([]float64, len(p.row))
	for i, r := range p.row {
		if r >= 0 {
			out[i] = math.Max(0, p.lp.duals[r])
		}
	}
	return out
}

// maxProgram limits the work of solving the program once. If that is cut short, the solution is still a packing, if a dearer one.
const maxProgram = 20e6

// improve generates patterns until none is worth more than its candidate's price, or the budget of work is spent. What a piece is worth, when a
// candidate is filled, lies between the program's multipliers and centre, the values of the best bound found so far, which improve updates: multipliers
// alone change to and fro from one round to the next.
func (g *generator) improve(p *program, centre []float64, budget int) {
	g.end = g.workBudget.spent() + budget
	lead := 0.6
	p.extend()
	for {
		p.lp.solve(g.end - g.workBudget.spent())
		if g.workBudget.spent() >= g.end {
			return
		}
		value := p.lp.value()
		duals := p.multipliers()
		trial := make([]float64, len(duals))
		for i := range trial {
			trial[i] = lead*centre[i] + (1-lead)*duals[i]
		}
		found, bound := g.price(p, trial, duals)
		if bound > 0 {
			lower := 0.0
			for i, n := range p.left {
				if p.row[i] >= 0 {
					lower += trial[i] * float64(n)
				}
			}
			if lower /= math.Max(bound, 1e-12); lower > g.bound {
				g.bound, g.floors = lower, make([]float64, len(trial))
				for i := range trial {
					centre[i] = trial[i] / bound
					if p.row[i] >= 0 {
						g.floors[i] = centre[i]
					}
				}
			}
		}
		p.extend()
		if value-g.bound < 0.0005*value {
			return
		}
		switch {
		case found:
		case lead > 0:
			if lead -= 0.3; lead < 0.05 {
				lead = 0
			}
		case g.level < len(effortLevels)-1:
			g.level++
		default:
			return
		}
	}
}

// price fills candidates under the trial values and keeps the patterns that are worth more than their price under the multipliers (duals).
// bound is the most that any candidate's pattern can be worth per dollar under the trial values; 0: not all candidates were looked at.
func (g *generator) price(p *program, trial, duals []float64) (found bool, bound float64) {
	all := g.round%4 == 0
	g.round++
	best := 0.0
	ratios := make([]float64, len(g.k.p.Candidates))
	for pass := 0; pass < 2; pass++ {
		for b := range g.k.p.Candidates {
			if len(g.k.fits[b]) == 0 || g.k.p.Candidates[b].Scarce || !all && !g.near[b] {
				continue
			}
			if g.workBudget.spent() > g.end {
				return found, 0
			}
			price := math.Max(g.k.p.Candidates[b].Price, 1e-9)
			c, worth, most := g.workBudget.knapsack.fill(b, p.left, trial, effortLevels[g.level])
			ratios[b] = worth / price
			best = math.Max(best, ratios[b])
			bound = math.Max(bound, most/price)
			sum := 0.0
			for _, s := range c {
				sum += duals[s.Item] * float64(s.Count)
			}
			if sum > price*(1+1e-7) && g.add(b, slices.Clone(c)) {
				found = true
			}
		}
		if all {
			for b := range g.near {
				g.near[b] = ratios[b] > 0.93*best
			}
			return found, bound
		}
		if found {
			return found, 0
		}
		all, bound = true, 0 // the near candidates gave nothing: look at all candidates
	}
	return found, bound
}
