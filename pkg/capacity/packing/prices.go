package packing

import (
	"math"
	"slices"
)

// prices gives each kind a value in dollars: what a piece costs in a packing in which pieces may be cut and candidates bought in fractions. A piece
// pays for its resources and, where rules limit how many pieces share a candidate, for being one of them. The values come from a linear
// program (fluid). floors are lower values: by them no candidate can hold pieces worth more than the candidate costs, so their sum over pieces is
// a lower bound for the cost of any packing of these pieces; nil: unknown.
func (k *kinds) prices() (values, floors []float64) {
	lp := &fluid{k: k}
	lp.index()
	values, floors, candidates := lp.solve()
	if lp.findRuleRows(candidates); len(lp.slots) > 0 {
		var slotted []float64
		if values, slotted, _ = lp.solve(); k.worth(slotted, k.counts()) > k.worth(floors, k.counts()) {
			floors = slotted
		}
	}
	return values, floors
}

// counts returns how many pieces of each kind there are.
func (k *kinds) counts() []int {
	out := make([]int, len(k.kinds))
	for i := range k.kinds {
		out[i] = k.kinds[i].count
	}
	return out
}

// worth returns the sum of the values of that many pieces of each kind; 0 without values.
func (k *kinds) worth(values []float64, counts []int) float64 {
	sum := 0.0
	for i, v := range values {
		sum += v * float64(counts[i])
	}
	return sum
}

// fluid is the linear program that gives kinds their values (prices). It buys candidates in fractions and treats capacity like a fluid: kinds
// that may go into the same candidates form a set, candidates that the same sets may use form a pool, whose capacity they share, and each set
// takes capacity from the pools that it may use.
type fluid struct {
	k *kinds
	// set is, by kind, the index of its set; pool, by candidate, the index of its pool.
	set, pool []int
	sets      int // number of sets
	pools     int // number of pools
	// uses tells, by pool and set, whether the set may use the pool.
	uses [][]bool
	// slots are the rules, as indexes in Problem.Rules, for which the program has a row: it limits how many members a candidate holds.
	slots []int
	rows  int // number of rows
}

// The order of rows: one for each set and dimension, one for each pool and dimension, and one for each rule in slots.
func (f *fluid) setRow(s, j int) int  { return s*len(f.k.dims) + j }
func (f *fluid) poolRow(p, j int) int { return (f.sets+p)*len(f.k.dims) + j }
func (f *fluid) slotRow(i int) int    { return (f.sets+f.pools)*len(f.k.dims) + i }

func (f *fluid) index() {
	k := f.k
	sets := map[string]int{}
	var bySet []Bits
	for i := range k.kinds {
		key := string(k.kinds[i].candidates.AppendTo(nil))
		s, ok := sets[key]
		if !ok {
			s = len(sets)
			sets[key] = s
			bySet = append(bySet, k.kinds[i].candidates)
		}
		f.set = append(f.set, s)
	}
	f.sets = len(sets)
	pools := map[string]int{}
	for b := range k.p.Candidates {
		served := make([]bool, f.sets)
		name := make([]byte, f.sets)
		for s, candidates := range bySet {
			if candidates.Has(b) {
				served[s], name[s] = true, 1
			}
		}
		p, ok := pools[string(name)]
		if !ok {
			p = len(pools)
			pools[string(name)] = p
			f.uses = append(f.uses, served)
		}
		f.pool = append(f.pool, p)
	}
	f.pools = len(pools)
	f.rows = f.slotRow(0)
}

// maxFluid limits the work of solving the program; read can make prices of its multipliers even if it isn't solved to the end.
const maxFluid = 30e6

// maxRuleRows bounds how many rules get a row in the linear program; more rows take longer than the better prices are worth.
const maxRuleRows = 150

// findRuleRows finds the rules that may make more candidates necessary than capacity alone does. Such a rule limits its own members, and makes more
// than half as many candidates necessary as capacity alone or the strictest such rule does.
func (f *fluid) findRuleRows(candidates float64) {
	need := make([]float64, len(f.k.p.Rules))
	most := candidates
	for r := range f.k.p.Rules {
		rule := &f.k.p.Rules[r]
		if len(rule.Owners) == 0 || f.limit(r) <= 0 || len(rule.Members) != len(rule.Owners) {
			continue
		}
		for _, m := range rule.Members {
			need[r] += float64(f.k.p.Items[m].Count)
		}
		need[r] /= float64(f.limit(r))
		most = math.Max(most, need[r])
	}
	for r, n := range need {
		if n > 1 && n > most/2 && len(f.slots) < maxRuleRows {
			f.slots = append(f.slots, r)
		}
	}
	f.rows = f.slotRow(len(f.slots))
}

// solve returns the kinds' values and floors, and how many candidates are bought.
func (f *fluid) solve() (values, floors []float64, candidates float64) {
	k, n := f.k, len(f.k.dims)
	need := make([]float64, f.rows)
	slotOf := map[int]int{}
	for i, r := range f.slots {
		slotOf[r] = i
	}
	kindSlots := make([][]int, len(k.kinds))
	for i := range k.kinds {
		if math.IsInf(k.kinds[i].alone, 1) {
			continue // no candidate holds it
		}
		for j := range n {
			need[f.setRow(f.set[i], j)] += k.kinds[i].size[j] * float64(k.kinds[i].count)
		}
		for _, it := range k.kinds[i].items {
			for _, e := range k.book.byItem[it] {
				if s, ok := slotOf[e.rule]; ok && e.member {
					need[f.slotRow(s)] += float64(k.p.Items[it].Count)
					if !slices.Contains(kindSlots[i], s) {
						kindSlots[i] = append(kindSlots[i], s)
					}
				}
			}
		}
	}
	dear := 0.0
	for b := range k.p.Candidates {
		dear += k.p.Candidates[b].Price
	}
	start := make([]column, f.rows)
	for r := range start {
		start[r] = column{rows: []int32{int32(r)}, vals: []float64{1}, price: 1e3*dear + 1}
	}
	lp := newCoveringLP(need, start)
	// These columns let a set of kinds use capacity of a pool: one unit less in the pool's row is one more in the set's.
	for p := range f.pools {
		for s := range f.sets {
			if !f.uses[p][s] {
				continue
			}
			for j := range n {
				lp.add(column{rows: []int32{int32(f.setRow(s, j)), int32(f.poolRow(p, j))}, vals: []float64{1, -1}})
			}
		}
	}
	members := make([]map[int]bool, len(f.slots)) // by rule: the candidate sets (fluid.set) of the kinds of which an item is a member of the rule
	for i, r := range f.slots {
		members[i] = map[int]bool{}
		for q := range k.kinds {
			for _, it := range k.kinds[q].items {
				if slices.Contains(k.p.Rules[r].Members, it) {
					members[i][f.set[q]] = true
				}
			}
		}
	}
	for b := range k.p.Candidates {
		if k.p.Candidates[b].Scarce {
			continue
		}
		col := column{price: k.p.Candidates[b].Price}
		for j := range n {
			if room := k.room(b, j); room > 0 {
				col.rows = append(col.rows, int32(f.poolRow(f.pool[b], j)))
				col.vals = append(col.vals, room)
			}
		}
		for i, r := range f.slots {
			if f.serves(members[i], f.pool[b]) {
				col.rows = append(col.rows, int32(f.slotRow(i)))
				col.vals = append(col.vals, float64(f.limit(r)))
			}
		}
		lp.add(col)
	}
	lp.solve(maxFluid)
	return f.read(lp, kindSlots, members)
}

// read turns the program's multipliers into prices that hold for every candidate, whether or not the program was solved to the end: a set's
// capacity costs as much as in the cheapest pool it draws on, and all prices are scaled so that no candidate is worth more than it costs.
func (f *fluid) read(lp *coveringLP, kindSlots [][]int, members []map[int]bool) (values, floors []float64, candidates float64) {
	k, n := f.k, len(f.k.dims)
	price := func(row int) float64 { return math.Max(0, lp.duals[row]) }
	over := 0.0
	for b := range k.p.Candidates {
		if k.p.Candidates[b].Scarce {
			continue
		}
		worth := 0.0
		for j := range n {
			worth += price(f.poolRow(f.pool[b], j)) * k.room(b, j)
		}
		for i, r := range f.slots {
			if f.serves(members[i], f.pool[b]) {
				worth += price(f.slotRow(i)) * float64(f.limit(r))
			}
		}
		over = math.Max(over, worth/math.Max(k.p.Candidates[b].Price, 1e-9))
	}
	values, floors = make([]float64, len(k.kinds)), make([]float64, len(k.kinds))
	for i := range k.kinds {
		if math.IsInf(k.kinds[i].alone, 1) {
			continue
		}
		held := 0.0 // the part of the value that the pools' prices justify
		for j := range n {
			d := price(f.setRow(f.set[i], j))
			values[i] += d * k.kinds[i].size[j]
			for p := range f.pools {
				if f.uses[p][f.set[i]] {
					d = math.Min(d, price(f.poolRow(p, j)))
				}
			}
			held += d * k.kinds[i].size[j]
		}
		for _, s := range kindSlots[i] {
			values[i] += price(f.slotRow(s))
			held += price(f.slotRow(s))
		}
		floors[i] = held / math.Max(over, 1e-12)
	}
	for r, id := range lp.basis {
		if id >= lp.m && lp.price(id) > 0 {
			candidates += lp.x[r]
		}
	}
	for b := range k.p.Candidates {
		if k.p.Candidates[b].Scarce { // it may hold anything, and cost next to nothing: no lower bound is known
			return values, nil, candidates
		}
	}
	return values, floors, candidates
}

// limit returns the largest limit among the rule's owners. It bounds the members on a candidate, whichever owners the candidate holds.
func (f *fluid) limit(rule int) int {
	most := 0
	for _, o := range f.k.p.Rules[rule].Owners {
		most = max(most, o.Limit)
	}
	return most
}

// serves reports whether one of the sets may draw on the pool.
func (f *fluid) serves(sets map[int]bool, pool int) bool {
	for s := range sets {
		if f.uses[pool][s] {
			return true
		}
	}
	return false
}
