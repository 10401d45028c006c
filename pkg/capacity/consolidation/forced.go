package consolidation

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	// atOnce is how many nodes that have to go are planned together, if no budget limits them.
	atOnce = 50
	// mostForced is how many nodes of a pool one move empties for a reason with a budget. With more, their pods need fewer new nodes, but
	// it happens more often that one new node doesn't come up, or one pod can't be moved, and that none of them is emptied then.
	mostForced = 8
)

// emptyForced empties the nodes that have to go: those without budget first, then the others within their budgets.
func (s *pass) emptyForced() {
	c := s.plan.c
	s.plan.most = math.MaxInt32
	slices.SortStableFunc(s.forced, func(a, b int32) int {
		x, y := c.nodes[a].c, c.nodes[b].c
		return cmp.Or(cmp.Compare(min(len(x.Pods), 1), min(len(y.Pods), 1)), x.ForcedAt.Compare(y.ForcedAt), x.CreatedAt.Compare(y.CreatedAt))
	})
	var must []int32
	waiting := turns{pools: map[string][]int32{}, canaries: map[string]bool{}, larger: map[string]larger{}}
	for _, at := range s.forced {
		if x := c.nodes[at].c; x.Forced.Budgeted() {
			waiting.add(x.Pool, at)
		} else {
			must = append(must, at)
		}
	}
	for part := range slices.Chunk(must, atOnce) {
		if t := s.plan.try(part, 0, true); t.kept.Kind == "" {
			s.plan.commit(t)
			continue
		}
		for _, at := range part { // one of them is in the others' way
			if t := s.plan.try([]int32{at}, 0, true); t.kept.Kind == "" {
				s.plan.commit(t)
			} else {
				s.plan.kept[at] = t.kept
			}
		}
	}
	s.plan.separate = true // one new node that doesn't come up must not keep the nodes of other moves
	s.inTurn(&waiting)
	s.plan.separate = false
}

// turns are the nodes of each pool that have to go for a reason with a budget. The pools take turns, so that a pool of which no node can be
// replaced doesn't keep the others waiting; each pass begins with another pool.
type turns struct {
	order []string
	pools map[string][]int32
	// canaries are the roll-outs of which a canary is launched in this pass. larger is, by roll-out, the node in whose place the fewest new nodes are
	// needed, among those that need more than one: it is emptied last, and only if no node could be replaced by a single new one.
	canaries map[string]bool
	larger   map[string]larger
}

// larger is a node, and how many new ones it needs.
type larger struct {
	at   int32
	buys int
}

func (w *turns) add(pool string, at int32) {
	if w.pools[pool] == nil {
		w.order = append(w.order, pool)
	}
	w.pools[pool] = append(w.pools[pool], at)
}

// inTurn empties nodes of one pool after the other, several of the same reason together, until the budgets are used up. What couldn't be
// emptied uses nothing of its budget: the nodes after it have their turn.
func (s *pass) inTurn(w *turns) {
	if len(w.order) == 0 {
		return
	}
	slices.Sort(w.order)
	first := s.plan.c.o.Pass % len(w.order)
	order := slices.Concat(w.order[first:], w.order[:first])
	for left := true; left; {
		left = false
		for _, pool := range order {
			if all := w.pools[pool]; len(all) > 0 {
				part := s.part(pool, all)
				w.pools[pool] = all[len(part):]
				s.emptyPart(w, part)
				left = true
			}
		}
	}
	for _, canary := range slices.Sorted(maps.Keys(w.larger)) {
		if one := w.larger[canary]; !w.canaries[canary] && s.left[s.plan.c.nodes[one.at].c.Pool][s.plan.c.nodes[one.at].c.Forced] > 0 {
			s.emptyTogether(w, []int32{one.at})
		}
	}
}

// part returns the first nodes of a pool that may be emptied together: as many as the budget allows, at least one.
func (s *pass) part(pool string, all []int32) []int32 {
	nodes := s.plan.c.nodes
	reason := nodes[all[0]].c.Forced
	most := max(1, min(mostForced, s.left[pool][reason], len(all)))
	for i := range most {
		if nodes[all[i]].c.Forced != reason {
			return all[:i]
		}
	}
	return all[:most]
}

// emptyPart empties nodes of a pool together, or else those of them that can be emptied alone.
func (s *pass) emptyPart(w *turns, part []int32) {
	c := s.plan.c
	reason := c.nodes[part[0]].c.Forced
	if s.left[c.nodes[part[0]].c.Pool][reason] <= 0 {
		for _, at := range part {
			s.plan.kept[at] = Kept{Kind: Budget, Reason: reason}
		}
		return
	}
	if len(part) > 1 && s.emptyTogether(w, part) {
		return
	}
	for _, at := range part {
		s.emptyTogether(w, []int32{at})
	}
}

// emptyTogether empties nodes in the plan, if that is possible.
func (s *pass) emptyTogether(w *turns, part []int32) bool {
	t := s.plan.try(part, 0, true)
	kept, canary := t.kept, ""
	if kept.Kind == "" {
		canary, kept = s.canary(w, t)
	}
	if kept.Kind != "" || !s.spend(part, s.plan.c.nodes[part[0]].c.Forced) {
		s.plan.kept[part[0]] = kept
		return false
	}
	if canary != "" {
		w.canaries[canary] = true
	}
	for _, at := range part {
		s.turn[at] = len(s.turn) + 1
	}
	s.plan.commit(t)
	return true
}

// canary returns the roll-out of which a trial launches the canary, the first new node, which has to prove that such nodes work; empty: of none. If
// the trial can't be carried out, kept says why: several nodes at a time are launched only where it is known that such nodes work.
func (s *pass) canary(w *turns, t *trial) (canary string, kept Kept) {
	c := s.plan.c
	for i := range t.buys {
		pool := c.market.pool(t.buys[i].offer).Name
		policy := c.o.Pools[pool]
		if policy.Canary == "" {
			continue
		}
		kept = Kept{Kind: RollOut, Message: policy.unproven(pool)}
		if len(t.from) > 1 || policy.Held != "" || w.canaries[policy.Canary] {
			return "", kept
		}
		if best, known := w.larger[policy.Canary]; len(t.buys) > 1 && best != (larger{t.from[0], len(t.buys)}) {
			if !known || len(t.buys) < best.buys {
				w.larger[policy.Canary] = larger{t.from[0], len(t.buys)}
			}
			return "", kept
		}
		canary = policy.Canary
	}
	return canary, Kept{}
}
