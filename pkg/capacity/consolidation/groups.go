package consolidation

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// sizes are how many nodes are replaced together, at most; each round tries one of them.
var sizes = []int{2, 4, 8, 16}

// worthwhile is the part of their price that replacing several nodes must save: for less nobody wants pods restarted, even if it is free.
const worthwhile = 0.01

// rounds is how often each pass goes through all nodes, as far as its effort lasts.
const rounds = 6

// groups empties several nodes together where their pods fit fewer or cheaper ones. It tries neighbours in the order of waste, in sets of
// growing size, and then neighbours in an order that is shuffled a little. For the last few per cent of savings it needs many more moves
// than singles, so it is for pools in which a move costs nothing.
func (p *plan) groups(nodes []int32) {
	effort := p.c.o.Effort
	if effort == 0 {
		effort = DefaultEffort
	}
	known := p.c.existing
	for round := range rounds {
		p.r = newReceivers(p.c, p.c.receiverOrder())
		for at := known; at < len(p.c.nodes); at++ { // new nodes may be emptied again
			if !p.c.nodes[at].closed {
				nodes = append(nodes, int32(at))
			}
		}
		known = len(p.c.nodes)
		number := p.c.o.Pass*rounds + round
		size := sizes[number%len(sizes)]
		list := p.wasteful(nodes, number, size)
		for at := 0; at+1 < len(list) && effort > 0; at += size {
			set := slices.DeleteFunc(slices.Clone(list[at:min(at+size, len(list))]), func(n int32) bool { return p.c.nodes[n].gone })
			if p.roots = p.c.roots(p.roots[:0], set); len(set) < 2 || p.c.together(p.roots, -1) > p.most {
				continue
			}
			effort -= max(1, size/4)
			if t := p.try(set, 0, false); t.kept.Kind == "" && t.saves > worthwhile*(t.saves+t.cost()) {
				p.commit(t)
				for _, at := range set {
					if int(at) < p.c.existing {
						p.kept[at] = Kept{}
					}
				}
			}
		}
	}
}

// wasteful returns the nodes that cost more than their pods are worth, most waste per disruption first; in later rounds (number) a little shuffled.
func (p *plan) wasteful(nodes []int32, number, size int) []int32 {
	var out []int32
	key := make(map[int32]float64, len(nodes))
	for _, at := range nodes {
		n := &p.c.nodes[at]
		if !n.gone && p.c.waste(n) > 0 {
			out = append(out, at)
			key[at] = -p.c.waste(n) / n.disruption
		}
	}
	slices.SortFunc(out, func(a, b int32) int { return cmp.Or(cmp.Compare(key[a], key[b]), cmp.Compare(a, b)) })
	if number < len(sizes) {
		return out
	}
	random := rand.New(rand.NewPCG(uint64(number), 1))
	for i, at := range out {
		key[at] = float64(i) + random.NormFloat64()*float64(size)*3
	}
	slices.SortFunc(out, func(a, b int32) int { return cmp.Or(cmp.Compare(key[a], key[b]), cmp.Compare(a, b)) })
	return out
}
