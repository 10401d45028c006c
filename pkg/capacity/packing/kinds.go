package packing

import (
	"encoding/binary"
	"math"
	"slices"
)

// kinds are the items of a problem, merged where they are identical, with needs and capacities in the form that the linear programs use.
// Hundreds of small services make dozens of kinds.
type kinds struct {
	p     *Problem
	book  *rulebook
	kinds []kind
	// dims are the dimensions that can run short: pieces need some, and candidates have a limited capacity. scale is the largest capacity in each.
	dims  []int
	scale []float64
	// fits are, by candidate, the kinds of which the candidate can hold a piece, in ascending order. caps are how many pieces of each it can
	// hold if it holds nothing else.
	fits [][]int
	caps [][]int
	// rooms are the candidates' capacities in dims.
	rooms [][]int64
}

type kind struct {
	items      []int     // the items of the problem that are merged in it
	count      int       // number of pieces
	need       []int64   // what a piece takes, by dimension of the problem
	needs      []int64   // what a piece takes, by position in dims
	size       []float64 // what a piece takes, as a fraction of scale, by position in dims
	candidates Bits
	// most is how many pieces one candidate may hold by rules in which the kind's item is owner and member.
	most int
	// share is the cost of a piece in the candidate where it is least: the largest share that the piece takes of any dimension, times the candidate's
	// price. alone is the price of the cheapest candidate that holds a piece.
	share, alone float64
	// joint are the rules, as indexes in Problem.Rules, that limit the number of pieces of this kind and others together (findJoint). They can be
	// rows of the linear program that fills a candidate.
	joint []int
}

func newKinds(p *Problem) *kinds {
	k := &kinds{p: p, book: newRulebook(p.Rules, len(p.Items))}
	index := map[string]int{}
	var key []byte
	for i := range p.Items {
		it := &p.Items[i]
		if it.Count == 0 {
			continue
		}
		key = key[:0]
		for _, n := range it.Need {
			key = binary.AppendVarint(key, n)
		}
		key = it.Candidates.AppendTo(key)
		if len(k.book.byItem[i]) > 0 {
			key = binary.AppendUvarint(key, uint64(i)+1) // rules name items, so such an item is a kind of its own
		}
		at, ok := index[string(key)]
		if !ok {
			at = len(k.kinds)
			index[string(key)] = at
			k.kinds = append(k.kinds, kind{need: it.Need, candidates: it.Candidates, most: k.mostPerCandidate(i)})
		}
		k.kinds[at].items = append(k.kinds[at].items, i)
		k.kinds[at].count += it.Count
	}
	k.measure()
	k.findJoint()
	return k
}

// mostPerCandidate returns how many pieces of an item one candidate may hold, by rules in which the item is owner and member.
func (k *kinds) mostPerCandidate(item int) int {
	most := int(^uint(0) >> 1)
	for _, e := range k.book.byItem[item] {
		if e.member && e.limit >= 0 {
			most = min(most, e.limit)
		}
	}
	return most
}

// measure finds the dimensions that matter, and which kinds fit which candidates.
func (k *kinds) measure() {
	if len(k.p.Candidates) == 0 {
		return
	}
	for d := range k.p.Candidates[0].Room {
		largest := int64(0)
		for b := range k.p.Candidates {
			if room := k.p.Candidates[b].Room[d]; room != Unlimited {
				largest = max(largest, room)
			}
		}
		asked := slices.ContainsFunc(k.kinds, func(x kind) bool { return x.need[d] > 0 })
		if largest > 0 && asked {
			k.dims = append(k.dims, d)
			k.scale = append(k.scale, float64(largest))
		}
	}
	for i := range k.kinds {
		x := &k.kinds[i]
		x.share, x.alone = math.Inf(1), math.Inf(1)
		for j, d := range k.dims {
			x.size = append(x.size, float64(x.need[d])/k.scale[j])
			x.needs = append(x.needs, x.need[d])
		}
	}
	k.fits, k.caps, k.rooms = make([][]int, len(k.p.Candidates)), make([][]int, len(k.p.Candidates)), make([][]int64, len(k.p.Candidates))
	var fits, caps []int // one slice each for all candidates: there are hundreds, and an allocation for each would cost more than a small packing
	rooms := make([]int64, 0, len(k.dims)*len(k.p.Candidates))
	for b := range k.p.Candidates {
		for _, d := range k.dims {
			rooms = append(rooms, k.p.Candidates[b].Room[d])
		}
		from := len(fits)
		k.rooms[b] = rooms[len(rooms)-len(k.dims) : len(rooms) : len(rooms)]
		price := k.p.Candidates[b].Price
		for i := range k.kinds {
			x := &k.kinds[i]
			if !x.candidates.Has(b) || Fits(k.p.Candidates[b].Room, x.need, 1) == 0 {
				continue
			}
			fits = append(fits, i)
			caps = append(caps, Fits(k.rooms[b], x.needs, min(x.count, x.most)))
			part := 0.0
			for j, size := range x.size {
				if size > 0 {
					part = math.Max(part, size/k.room(b, j))
				}
			}
			x.share, x.alone = math.Min(x.share, part*price), math.Min(x.alone, price)
		}
		k.fits[b], k.caps[b] = fits[from:len(fits):len(fits)], caps[from:len(caps):len(caps)]
	}
}

// room returns candidate b's capacity in dimension dims[j] as a fraction of scale, or a very large number if it is unlimited.
func (k *kinds) room(b, j int) float64 {
	room := k.p.Candidates[b].Room[k.dims[j]]
	if room == Unlimited {
		return 1e6
	}
	return float64(room) / k.scale[j]
}

// findJoint finds the rules of which all members are owners with the same limit: they limit the sum of their members' pieces in a candidate.
func (k *kinds) findJoint() {
	of := make(map[int]int, len(k.p.Items))
	for i := range k.kinds {
		for _, it := range k.kinds[i].items {
			of[it] = i
		}
	}
	for r := range k.p.Rules {
		rule := &k.p.Rules[r]
		if len(rule.Members) < 2 || len(rule.Owners) != len(rule.Members) {
			continue
		}
		plain := true
		for _, o := range rule.Owners {
			plain = plain && o.Limit == rule.Owners[0].Limit && slices.Contains(rule.Members, o.Item)
		}
		if !plain {
			continue
		}
		for _, m := range rule.Members {
			if i, ok := of[m]; ok {
				k.kinds[i].joint = append(k.kinds[i].joint, r)
			}
		}
	}
}

// limit returns how many pieces of a joint rule's members, taken together, a candidate may hold.
func (k *kinds) limit(rule int) int { return k.p.Rules[rule].Owners[0].Limit }
