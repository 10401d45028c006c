package catalog

import "github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"

// Item is pods to be placed on new nodes, as far as pruning is concerned: what each of them needs, and the candidates they may use.
type Item struct {
	Candidates packing.Bits
	Need       []int64
}

// Prune returns the candidates worth passing to the packing. It leaves out those that can't hold a single pod, and those that another
// candidate replaces: one that all the same items may use, with at least the same capacity at no higher price.
func (c *Catalog) Prune(items []Item) []int {
	sets := distinct(items)
	// Candidates are in one class if the same items may use them. Of those with the same capacity and budgets, such as a type's in other
	// zones, only the cheapest matters.
	type same struct {
		class, room, pool int
		way               way
		lasting           bool
	}
	classes := map[string]int{}
	var columns []packing.Bits
	var members [][]int
	cheapest := map[same]int{} // position in members[class]
	column := packing.NewBits(len(sets))
	var key []byte
	for b := range c.Candidates {
		clear(column)
		for i := range sets {
			if sets[i].candidates.Has(b) && sets[i].fits(c.RoomOf(b)) {
				column.Set(i)
			}
		}
		if !column.Any() {
			continue
		}
		key = column.AppendTo(key[:0])
		class, known := classes[string(key)]
		if !known {
			class = len(columns)
			classes[string(key)] = class
			columns, members = append(columns, column.Clone()), append(members, nil)
		}
		x := &c.Candidates[b]
		w := way{reservation: x.Offer.ReservationID, covered: x.covered}
		k := same{class, x.Room, x.Pool, w, x.Lasting()}
		if at, known := cheapest[k]; !known {
			cheapest[k] = len(members[class])
			members[class] = append(members[class], b)
		} else if x.Price < c.Candidates[members[class][at]].Price {
			members[class][at] = b
		}
	}
	var all []int
	of := map[int]packing.Bits{}
	for class, candidates := range members {
		for _, b := range c.NonDominated(candidates, func(int, int) bool { return true }) {
			all = append(all, b)
			of[b] = columns[class]
		}
	}
	return c.NonDominated(all, func(better, b int) bool { return contains(of[better], of[b]) })
}

// candidateSet is a set of candidates that items share, with the need of each of them.
type candidateSet struct {
	candidates packing.Bits
	needs      [][]int64
}

// fits reports whether the capacity holds one of the needs. The need that was held last is tried first.
func (s *candidateSet) fits(room []int64) bool {
	for i, need := range s.needs {
		if packing.Fits(room, need, 1) > 0 {
			s.needs[0], s.needs[i] = s.needs[i], s.needs[0]
			return true
		}
	}
	return false
}

func distinct(items []Item) []*candidateSet {
	index := map[string]*candidateSet{}
	var out []*candidateSet
	for _, it := range items {
		key := string(it.Candidates.AppendTo(nil))
		s, ok := index[key]
		if !ok {
			s = &candidateSet{candidates: it.Candidates}
			index[key] = s
			out = append(out, s)
		}
		s.needs = append(s.needs, it.Need)
	}
	return out
}

// contains reports whether all of b is in a.
func contains(a, b packing.Bits) bool {
	for i := range b {
		if b[i]&^a[i] != 0 {
			return false
		}
	}
	return true
}
