package packing

import (
	"math"
	"slices"
)

// prices gives each kind a value in dollars: what its resources, and its slots where rules limit how many share a bin,
// cost in a packing in which things may be cut into pieces and bins bought in fractions. That is a linear program over
// the sets of bins that kinds may use: bins that serve the same kinds pool their room, and each set draws on the pools it
// may use.
func (k *kinds) prices() []float64 {
	lp := &fluid{k: k}
	lp.index()
	return lp.solve()
}

type fluid struct {
	k *kinds
	// set of bins by kind, and pool by bin.
	set, pool []int
	sets      int
	pools     int
	// uses tells which sets may draw on a pool.
	uses [][]bool
	// slots are the rules that have a row.
	slots []int
	rows  int
}

// rows: set x dimension, then pool x dimension, then slots.
func (f *fluid) setRow(s, j int) int  { return s*len(f.k.dims) + j }
func (f *fluid) poolRow(p, j int) int { return (f.sets+p)*len(f.k.dims) + j }
func (f *fluid) slotRow(i int) int    { return (f.sets+f.pools)*len(f.k.dims) + i }

func (f *fluid) index() {
	k := f.k
	sets := map[string]int{}
	var bySet []Bits
	for i := range k.kinds {
		key := string(k.kinds[i].bins.AppendTo(nil))
		s, ok := sets[key]
		if !ok {
			s = len(sets)
			sets[key] = s
			bySet = append(bySet, k.kinds[i].bins)
		}
		f.set = append(f.set, s)
	}
	f.sets = len(sets)
	pools := map[string]int{}
	for b := range k.p.Bins {
		served := make([]bool, f.sets)
		name := make([]byte, f.sets)
		for s, bins := range bySet {
			if bins.Has(b) {
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
	for r := range k.p.Rules {
		if f.binds(r) {
			f.slots = append(f.slots, r)
		}
	}
	f.rows = f.slotRow(len(f.slots))
}

// maxFluid caps the work of solving the program; its multipliers are usable at any time.
const maxFluid = 30e6

// maxSlots caps the rows for rules: with more of them the program costs more than it tells.
const maxSlots = 150

// binds says whether a rule may make bins necessary that room alone does not: it limits its own members, and several
// bins' worth of them are there.
func (f *fluid) binds(r int) bool {
	rule := &f.k.p.Rules[r]
	if len(f.slots) >= maxSlots || len(rule.Owners) == 0 || rule.Owners[0].Limit <= 0 || len(rule.Members) != len(rule.Owners) {
		return false
	}
	total := 0
	for _, m := range rule.Members {
		total += f.k.p.Items[m].Count
	}
	return total > rule.Owners[0].Limit
}

func (f *fluid) solve() []float64 {
	k, n := f.k, len(f.k.dims)
	need := make([]float64, f.rows)
	slotOf := map[int]int{}
	for i, r := range f.slots {
		slotOf[r] = i
	}
	kindSlots := make([][]int, len(k.kinds))
	for i := range k.kinds {
		for j := range n {
			need[f.setRow(f.set[i], j)] += k.kinds[i].size[j] * float64(k.kinds[i].count)
		}
		for _, it := range k.kinds[i].items {
			for _, e := range k.book.of[it] {
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
	for b := range k.p.Bins {
		dear += k.p.Bins[b].Price
	}
	start := make([]column, f.rows)
	for r := range start {
		start[r] = column{rows: []int32{int32(r)}, vals: []float64{1}, price: 1e3*dear + 1}
	}
	lp := newCover(need, start)
	// Room a pool passes on to a set.
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
	members := make([]map[int]bool, len(f.slots)) // sets with members of the rule
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
	for b := range k.p.Bins {
		if k.p.Bins[b].Scarce {
			continue
		}
		col := column{price: k.p.Bins[b].Price}
		for j := range n {
			if room := k.room(b, j); room > 0 {
				col.rows = append(col.rows, int32(f.poolRow(f.pool[b], j)))
				col.vals = append(col.vals, room)
			}
		}
		for i, r := range f.slots {
			for s := range members[i] {
				if f.uses[f.pool[b]][s] {
					col.rows = append(col.rows, int32(f.slotRow(i)))
					col.vals = append(col.vals, float64(k.p.Rules[r].Owners[0].Limit))
					break
				}
			}
		}
		lp.add(col)
	}
	lp.solve(maxFluid)
	values := make([]float64, len(k.kinds))
	for i := range k.kinds {
		for j := range n {
			values[i] += math.Max(0, lp.duals[f.setRow(f.set[i], j)]) * k.kinds[i].size[j]
		}
		for _, s := range kindSlots[i] {
			values[i] += math.Max(0, lp.duals[f.slotRow(s)])
		}
	}
	return values
}
