package consolidation

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// What lines of nodes remember changes nothing: trials put pods where they would if they looked at all nodes anew, whatever trials were made
// and carried out before.
func TestLinesForgetNothing(t *testing.T) {
	placed, carriedOut := 0, 0
	for seed := range uint64(30) {
		w, random := drawn(t, seed), rand.New(rand.NewPCG(seed, 11))
		for range 10 { // more nodes than are compared
			w.draw(random, w.view.Pools)
		}
		c := newCluster(w.view, w.candidates, w.options, &memory{})
		r := newReceivers(c, c.receiverOrder())
		order := slices.Clone(r.order)
		for range 60 {
			from := int32(random.IntN(c.existing))
			if c.nodes[from].gone || len(c.nodes[from].pods) == 0 {
				continue
			}
			r.begin([]int32{from})
			var log []place
			whole := true
			for _, s := range slices.Clone(c.nodes[from].pods) {
				want := c.anew(order, from, s)
				got, left := r.fill(s, nil, nil)
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: pods of kind %d go to %v, and to %v if all nodes are looked at", seed, s.kind, got, want)
				}
				log, whole, placed = append(log, got...), whole && left == 0, placed+len(got)
			}
			r.undo(log)
			if whole && random.IntN(2) > 0 {
				for _, p := range log {
					c.put(p.at, p.kind, p.n)
					r.changed(p.at)
				}
				c.nodes[from].gone = true
				r.changed(from)
				carriedOut++
			}
		}
	}
	if placed < 1000 || carriedOut < 50 {
		t.Errorf("pods were put on %d nodes, %d trials were carried out: this test makes the wrong worlds", placed, carriedOut)
	}
}

// anew returns where pods of a kind go that leave a node, from all nodes in order.
func (c *cluster) anew(order []int32, from int32, s share) (out []place) {
	kind := &c.kinds.all[s.kind]
	for range s.n {
		var window []choice
		for _, at := range order {
			n := &c.nodes[at]
			if len(window) < compared && at != from && !kind.fixed && fits(n.free, kind.need) && c.admits(s.kind, at) && c.besides(s.kind, n, 1) > 0 {
				window = append(window, choice{at: at, score: c.score(n, kind)})
			}
		}
		if len(window) == 0 {
			break
		}
		at := window[best(window)].at
		c.put(at, s.kind, 1)
		if last := len(out) - 1; last >= 0 && out[last].at == at {
			out[last].n++
		} else {
			out = append(out, place{at, s.kind, 1})
		}
	}
	for _, p := range out {
		c.put(p.at, p.kind, -p.n)
	}
	return out
}
