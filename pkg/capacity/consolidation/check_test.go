package consolidation

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// check checks what holds for every proposal.
func (w *world) check(p *Proposal) {
	w.t.Helper()
	moved := w.checkNodes(p)
	pods := map[string][]*capacity.Class{} // by new place
	for i := range p.Moves {
		w.checkPods(&p.Moves[i], moved, pods)
		w.checkPrice(&p.Moves[i])
	}
	w.checkRoom(p, moved, pods)
	w.checkBudgets(p)
}

func (w *world) candidate(name string) *Candidate {
	return &w.candidates[slices.IndexFunc(w.candidates, func(c Candidate) bool { return c.Node == name })]
}

func (w *world) nodeOf(name string) *capacity.Node {
	if i := slices.IndexFunc(w.view.Nodes, func(n *capacity.Node) bool { return n.Name == name }); i >= 0 {
		return w.view.Nodes[i]
	}
	return nil
}

// checkNodes checks that each candidate has one move or one reason, and that no node is emptied that must not be.
func (w *world) checkNodes(p *Proposal) (moved map[string]bool) {
	w.t.Helper()
	seen := map[string]int{}
	moved = map[string]bool{}
	for _, m := range p.Moves {
		if !slices.IsSorted(m.Nodes) || len(m.Nodes) == 0 {
			w.t.Errorf("nodes of a move: %q", m.Nodes)
		}
		for _, n := range m.Nodes {
			seen[n]++
			moved[n] = true
			c := w.candidate(n)
			policy, ok := w.options.Pools[c.Pool]
			young := policy.RestartCost > 0 && w.options.Now.Before(c.CreatedAt.Add(policy.FirstHour)) && !w.returns(c, &m)
			if c.Blocked != nil || !ok && c.Forced == "" {
				w.t.Errorf("%s is blocked and emptied", n)
			}
			if m.Reason == Underutilized && (young || w.options.Now.Before(c.ReceivedUntil) || policy.Consolidate == WhenEmpty || !known(c.Price)) {
				w.t.Errorf("%s is young, has received pods, is of a pool with WhenEmpty or of unknown price, and is emptied", n)
			}
			if m.Reason == Empty && c.podCost() > 0 || m.Reason != Empty && m.Reason != Underutilized && c.Forced == "" && len(m.Nodes) == 1 {
				w.t.Errorf("%s is emptied for reason %s", n, m.Reason)
			}
		}
	}
	for _, k := range p.Kept {
		seen[k.Node]++
		if k.Kind == "" || k.Text() == "" {
			w.t.Errorf("%s is kept without a reason: %+v", k.Node, k)
		}
	}
	for i := range w.candidates {
		if n := seen[w.candidates[i].Node]; n != 1 {
			w.t.Errorf("%s has %d moves and reasons", w.candidates[i].Node, n)
		}
	}
	return moved
}

// checkPods checks that each pod of a move has one new place, and that its node requirements allow it there.
func (w *world) checkPods(m *Move, moved map[string]bool, pods map[string][]*capacity.Class) {
	w.t.Helper()
	planned := map[string]*capacity.PlannedNode{}
	for _, n := range m.New {
		if planned[n.ID] != nil || w.nodeOf(n.ID) != nil {
			w.t.Errorf("the new node's ID %s is taken", n.ID)
		}
		planned[n.ID] = n
	}
	from := map[string]string{}
	for _, n := range m.Nodes {
		for _, p := range w.candidate(n).Pods {
			from[p.Ref.Name] = n
		}
	}
	places := map[string]int{}
	for _, pl := range m.Placements {
		places[pl.Pod.Name]++
		pods[pl.Node] = append(pods[pl.Node], pl.Class)
		origin := from[pl.Pod.Name]
		if origin == "" || places[pl.Pod.Name] > 1 {
			w.t.Fatalf("%s isn't on a node of the move, or is placed twice", pl.Pod.Name)
		}
		var label func(string) (string, bool)
		var taints []corev1.Taint
		if n := planned[pl.Node]; n != nil {
			label, taints = func(key string) (string, bool) { v, ok := n.Labels[key]; return v, ok }, n.Pool.Taints
		} else if n := w.nodeOf(pl.Node); n != nil && !moved[n.Name] && !n.Closed && w.mayReceive(n.Name) {
			label, taints = n.Label, n.Taints
		} else {
			w.t.Fatalf("%s is placed on %s", pl.Pod.Name, pl.Node)
		}
		if !capacity.MatchAny(pl.Class.Terms, label) || capacity.Untolerated(pl.Class.Tolerations, taints) != nil {
			w.t.Errorf("%s may not be on %s", pl.Pod.Name, pl.Node)
		}
		was := w.nodeOf(origin)
		if now := satisfied(pl.Class, label); now < satisfied(pl.Class, was.Label) {
			w.t.Errorf("%s has lost a preference on %s", pl.Pod.Name, pl.Node)
		}
		for _, key := range domainKeys(pl.Class, !w.options.Prices.IgnorePreferences) {
			before, _ := was.Label(key)
			if after, _ := label(key); after != before {
				w.t.Errorf("%s leaves its %s", pl.Pod.Name, key)
			}
		}
	}
	for _, n := range m.Nodes {
		for _, p := range w.candidate(n).Pods {
			if places[p.Ref.Name] == 0 && m.Reason != Empty {
				w.t.Errorf("%s has no new place", p.Ref.Name)
			}
		}
	}
}

// mayReceive reports whether a node may get pods: it isn't one that has to go.
func (w *world) mayReceive(name string) bool {
	i := slices.IndexFunc(w.candidates, func(c Candidate) bool { return c.Node == name })
	return i < 0 || w.candidates[i].Forced == ""
}

// returns reports whether a move lets a node return to spot capacity.
func (w *world) returns(c *Candidate, m *Move) bool {
	return !c.ReturnsAt.IsZero() && !w.options.Now.Before(c.ReturnsAt) &&
		slices.ContainsFunc(m.New, func(n *capacity.PlannedNode) bool { return n.CapacityType == capacity.CapacityTypeSpot })
}

// checkRule checks that an offering may be bought for a move.
func (w *world) checkRule(m *Move, o capacity.Offer) {
	w.t.Helper()
	for _, n := range m.Nodes {
		c := w.candidate(n)
		spot, lasting := o.CapacityType == capacity.CapacityTypeSpot, !o.Leaving && !o.Unsettled
		if c.Forced == RebalanceRecommended && (!spot || !lasting) {
			w.t.Errorf("%s leaves its spot capacity for %+v", n, o)
		}
		if m.Reason == Underutilized && !lasting && o.CapacityType != capacity.CapacityTypeReserved {
			w.t.Errorf("%s is replaced by %+v, which was unavailable a short time ago", n, o)
		}
		if m.Reason == Underutilized && !c.ReturnsAt.IsZero() && spot && (!lasting || w.options.Now.Before(c.ReturnsAt)) {
			w.t.Errorf("%s, which may return at %s, returns to %+v", n, c.ReturnsAt, o)
		}
	}
}

// checkPrice checks that a move saves what it says, with the dearest offerings, and that it has paid for itself.
func (w *world) checkPrice(m *Move) {
	w.t.Helper()
	old, dearest := 0.0, 0.0
	free, spot, needed, surcharged := true, true, 0, false
	for _, n := range m.Nodes {
		c := w.candidate(n)
		if known(c.Price) {
			old += c.Price
		}
		policy := w.options.Pools[c.Pool]
		free = free && policy.RestartCost == 0
		spot = spot && c.CapacityType == capacity.CapacityTypeSpot
		needed = max(needed, policy.SpotFlexibility)
	}
	for _, n := range m.New {
		most := 0.0
		types := map[string]bool{}
		for i, o := range n.Offers {
			most = max(most, o.Offer.Price)
			types[o.Type.Name] = true
			surcharged = surcharged || o.Offer.Leaving
			w.checkRule(m, o.Offer)
			if i > 0 && o.Offer.Price < n.Offers[i-1].Offer.Price && !o.Offer.Leaving && !n.Offers[i-1].Offer.Leaving || !n.Requests.Fits(o.Type.Allocatable) {
				w.t.Errorf("offering %d of %s isn't dearer than the one before, or doesn't hold its pods", i, n.ID)
			}
		}
		if n.Covered.Commitment != "" {
			most *= 1e-7 // it is paid for already
		}
		dearest += most
		if m.Reason == Underutilized && spot && n.CapacityType == capacity.CapacityTypeSpot && len(types) < needed {
			w.t.Errorf("a spot node replaces spot nodes with %d types, %d are needed", len(types), needed)
		}
	}
	if math.Abs(m.Saves-(old-dearest)) > 1e-9 && !surcharged {
		w.t.Errorf("a move of %q says it saves $%f/h: $%f/h less $%f/h", m.Nodes, m.Saves, old, dearest)
	}
	if m.Reason == RebalanceRecommended && (m.Ceiling > old*leavingMost*(1+1e-9) || dearest > m.Ceiling*(1+1e-9)) {
		w.t.Errorf("in place of %q, for $%f/h, new nodes for $%f/h may be bought, of $%f/h at most", m.Nodes, old, dearest, m.Ceiling)
	}
	if m.Reason != Underutilized {
		return
	}
	if m.Saves <= 0 || m.Ceiling != old {
		w.t.Errorf("a move of %q saves $%f/h, with a ceiling of $%f/h", m.Nodes, m.Saves, m.Ceiling)
	}
	returns := !slices.ContainsFunc(m.Nodes, func(n string) bool { return !w.returns(w.candidate(n), m) })
	if !free && m.Accrued < m.Cost && (!returns || m.Saves*settlesAfter.Hours() < m.Cost) {
		w.t.Errorf("a move of %q costs $%f, and only $%f have accrued", m.Nodes, m.Cost, m.Accrued)
	}
}

// checkRoom checks that the pods fit all together, and that none is with others that it must not be with.
func (w *world) checkRoom(p *Proposal, moved map[string]bool, pods map[string][]*capacity.Class) {
	w.t.Helper()
	for i, n := range w.view.Nodes {
		sum := capacity.Resources{}
		for _, class := range pods[n.Name] {
			sum.Add(class.Requests, 1)
		}
		if !sum.Fits(n.Free) {
			w.t.Errorf("%s gets more pods than fit", n.Name)
		}
		if i < len(w.candidates) && !moved[n.Name] {
			all := slices.Clone(pods[n.Name])
			for _, pod := range w.candidates[i].Pods {
				all = append(all, pod.Class)
			}
			w.checkApart(n.Name, all, len(pods[n.Name]))
		}
	}
	for _, m := range p.Moves {
		for _, n := range m.New {
			w.checkApart(n.ID, pods[n.ID], len(pods[n.ID]))
		}
	}
}

func (w *world) checkApart(node string, all []*capacity.Class, arrived int) {
	w.t.Helper()
	for i := range arrived {
		for j := range all {
			if i != j && apart(all[i], all[j]) {
				w.t.Errorf("%s has pods of %s and of %s", node, all[i].Pod.Name, all[j].Pod.Name)
			}
		}
	}
}

func (w *world) checkBudgets(p *Proposal) {
	w.t.Helper()
	used := map[string]map[Reason]int{}
	for _, m := range p.Moves {
		for _, n := range m.Nodes {
			c := w.candidate(n)
			reason := m.Reason
			if c.Forced != "" {
				reason = c.Forced
			}
			if used[c.Pool] == nil {
				used[c.Pool] = map[Reason]int{}
			}
			used[c.Pool][reason]++
		}
	}
	for pool, reasons := range used {
		for reason, n := range reasons {
			if left := w.options.Pools[pool].Budgets[reason]; reason.Budgeted() && n > left {
				w.t.Errorf("%d nodes of %s are emptied for reason %s, %d may be", n, pool, reason, left)
			}
		}
	}
}
