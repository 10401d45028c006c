package consolidation

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Planner proposes moves. Between passes it keeps what it has computed about offerings as long as pools and types stay the same; that
// changes no answer. A Planner is not safe for concurrent use.
type Planner struct{ memory memory }

// New returns a planner that remembers nothing.
func New() *Planner { return &Planner{} }

// How many nodes one move may empty, if budgets allow as many. A larger move takes longer to pay for itself, and it happens more often that
// something prevents it, such as a pod that can't be evicted.
const (
	mostPaying = 4
	mostFree   = 32 // where moves cost nothing
)

// Propose decides which candidates to empty now, and says for all others why they are kept. The view's Demand is ignored: callers propose
// nothing while pods are pending. The same view, candidates and options give the same answer.
//
//  1. The view becomes numbers: pods by kind, nodes, offers, and what a pod of each kind is worth.
//  2. Empty nodes are removed, and nodes that have to go are emptied, whatever that costs.
//  3. The other nodes are emptied in the plan, one at a time, in order of what that saves per disruption, as long as that is worth it. New
//     nodes are bought only of offers that have been available for a while.
//  4. Where moves cost nothing, several nodes are replaced together.
//  5. Nodes that can't go yet are emptied in the plan likewise, so that it is known what waiting costs.
//  6. The plan's steps become moves, and those are proposed that are due and that the budgets allow.
func (p *Planner) Propose(view *capacity.View, candidates []Candidate, o *Options) *Proposal {
	c := newCluster(view, candidates, o, &p.memory)
	s := &pass{plan: &plan{c: c, kept: make([]Kept, c.existing)}, left: map[string]map[Reason]int{}}
	for name, policy := range o.Pools {
		s.left[name] = maps.Clone(policy.Budgets)
		if policy.Consolidate == Balanced && s.plan.totals == nil {
			s.plan.totals = totalsOf(candidates)
		}
	}
	out := &Proposal{Rates: map[string]float64{}, Waste: make(map[string]float64, len(candidates)), Bound: c.market.bound}
	for i := range candidates {
		out.Waste[candidates[i].Node] = c.waste(&c.nodes[i])
	}
	s.out = out
	s.sort()
	s.removeEmpty()
	if len(s.forced) > 0 {
		s.plan.r = newReceivers(c, c.receiverOrder())
		s.emptyForced()
		s.settle()
	}
	c.market.withdrawCredit()
	c.market.settle()
	s.plan.r = newReceivers(c, c.receiverOrder())
	s.plan.most = s.together(s.now, mostPaying)
	if len(s.free) == len(s.now) {
		s.plan.most = s.together(s.now, mostFree)
	}
	s.plan.singles(s.now)
	if len(s.free) > 0 {
		s.plan.most = s.together(s.free, mostFree)
		s.plan.groups(s.free)
		s.plan.r = newReceivers(c, c.receiverOrder())
	}
	s.plan.separate = true
	s.plan.singles(s.later)
	drafts, of := s.plan.collapse()
	s.choose(drafts)
	s.plan.finish(s.moves, of)
	for _, d := range s.moves {
		out.Moves = append(out.Moves, d.Move)
	}
	s.tell()
	return out
}

// pass is the making of a proposal.
type pass struct {
	plan  *plan
	out   *Proposal
	moves []*draft // that are proposed
	// now are the candidates that may be emptied now to save money, free those of them that may be emptied without cost. later are those that may be
	// emptied only later. empty are those without pods that count, forced those that have to go.
	now, free, later []int32
	empty, forced    []int32
	left             map[string]map[Reason]int // how many more nodes the budgets allow to disrupt, by pool
	done             map[int32]bool            // nodes that have a move
	turn             map[int32]int             // of nodes that have to go for a reason with a budget: 1 for the first that the plan empties, and so on
}

// sort divides the candidates by what may happen to them.
func (s *pass) sort() {
	c := s.plan.c
	s.done, s.turn = map[int32]bool{}, map[int32]int{}
	for i := range c.nodes[:c.existing] {
		n, at := &c.nodes[i], int32(i)
		if n.c == nil {
			continue
		}
		if n.gone { // the view doesn't have it
			n.parent = -1
			s.plan.kept[i] = Kept{Kind: NotReady}
			continue
		}
		x := n.c
		policy, ok := c.policy(x)
		young := policy.young(x, c.o.Now) && (x.ReturnsAt.IsZero() || c.o.Now.Before(x.ReturnsAt))
		var fixed *kind
		for _, sh := range n.own {
			if k := &c.kinds.all[sh.kind]; k.fixed && fixed == nil {
				fixed = k
			}
		}
		switch {
		case x.Blocked != nil:
			s.plan.kept[i] = *x.Blocked
		case x.Forced != "":
			s.forced = append(s.forced, at)
		case !ok:
			s.plan.kept[i] = Kept{Kind: Disabled}
		case n.podCost <= 0: // as in Karpenter's IsEmpty
			s.empty = append(s.empty, at)
		case policy.Consolidate == WhenEmpty:
			s.plan.kept[i] = Kept{Kind: PolicyWhenEmpty}
		case !known(x.Price):
			s.plan.kept[i] = Kept{Kind: NoPrice}
		case fixed != nil:
			s.plan.kept[i] = Kept{Kind: Unmovable, Pod: fixed.sample, Message: fixed.why()}
		case young:
			s.later = append(s.later, at)
			s.plan.kept[i] = Kept{Kind: Young, Until: x.CreatedAt.Add(policy.FirstHour)}
		case c.o.Now.Before(x.ReceivedUntil):
			s.later = append(s.later, at)
			s.plan.kept[i] = Kept{Kind: Received, Until: x.ReceivedUntil}
		case s.left[x.Pool][Underutilized] <= 0:
			s.later = append(s.later, at)
			s.plan.kept[i] = Kept{Kind: Budget, Reason: Underutilized}
		default:
			s.now = append(s.now, at)
			if policy.RestartCost == 0 {
				s.free = append(s.free, at)
			}
		}
	}
}

// together returns how many of the nodes one move may empty, at most most.
func (s *pass) together(nodes []int32, most int) int32 {
	for _, at := range nodes {
		most = min(most, s.left[s.plan.c.nodes[at].c.Pool][Underutilized])
	}
	return int32(max(1, most))
}

// spend takes a move's nodes from the budgets, and reports whether they allow it; otherwise nothing is taken.
func (s *pass) spend(nodes []int32, reason Reason) bool {
	if !reason.Budgeted() {
		return true
	}
	need := map[string]int{}
	for _, at := range nodes {
		need[s.plan.c.nodes[at].c.Pool]++
	}
	for pool, n := range need {
		if s.left[pool][reason] < n {
			return false
		}
	}
	for pool, n := range need {
		s.left[pool][reason] -= n
	}
	return true
}

// removeEmpty proposes empty nodes, the dearest first.
func (s *pass) removeEmpty() {
	c := s.plan.c
	slices.SortStableFunc(s.empty, func(a, b int32) int { return cmp.Compare(c.nodes[b].price, c.nodes[a].price) })
	for _, at := range s.empty {
		x := &c.nodes[at]
		if !s.spend([]int32{at}, Empty) {
			s.plan.kept[at] = Kept{Kind: Budget, Reason: Empty}
			continue
		}
		x.gone, x.parent = true, -1
		s.propose(&draft{nodes: []int32{at}, Move: Move{Nodes: []string{x.c.Node}, Saves: x.price, Ceiling: x.price, Disruption: 1,
			Accrued: c.o.Accrual.Of(x.c.Node, c.o.Now)}}, Empty)
	}
}

func (s *pass) propose(d *draft, reason Reason) {
	d.Reason, d.made = reason, true
	s.moves = append(s.moves, d)
	for _, at := range d.nodes {
		s.done[at] = true
	}
}

// settle keeps the moves that may wait apart from forced moves: pods of the former go to no new node of a forced move, and the former empty no node
// that gets pods from a forced move.
func (s *pass) settle() {
	c := s.plan.c
	for at := c.existing; at < len(c.nodes); at++ {
		c.nodes[at].closed = true
	}
	received := func(at int32) bool {
		if len(c.nodes[at].from) == 0 {
			return false
		}
		s.plan.kept[at] = Kept{Kind: Received}
		return true
	}
	s.now, s.free, s.later = slices.DeleteFunc(s.now, received), slices.DeleteFunc(s.free, received), slices.DeleteFunc(s.later, received)
}

// tell says of all candidates without a move why they are kept.
func (s *pass) tell() {
	c := s.plan.c
	s.out.Kept = make([]Kept, 0, c.existing)
	for i := range c.nodes[:c.existing] {
		n := &c.nodes[i]
		if n.c == nil || s.done[int32(i)] {
			continue
		}
		k := s.plan.kept[i]
		k.Node = n.c.Node
		if k.Price == 0 && known(n.c.Price) {
			k.Price = n.c.Price
		}
		if k.Kind == "" {
			k.Kind = Dearer
			k.Cheapest = k.Price
		}
		if k.Kind == Dearer && k.Message == "" && k.Cheapest < n.price*(1-2*lowest) {
			k.Message = c.zones.tolerance(n.c.Pool)
		}
		switch by := c.coverage.Of(n.view.Name); {
		case k.Kind != Dearer && k.Kind != NotWorth:
		case by != "":
			k.Kind, k.Name = Covered, by
		case !n.c.ReturnsAt.IsZero():
			k.Kind = WantOfSpot
		}
		s.out.Kept = append(s.out.Kept, k)
	}
}

// sortedNodes returns the nodes that placements name, without those in except.
func sortedNodes(placements []capacity.Placement, except map[string]bool) []string {
	all := map[string]bool{}
	for i := range placements {
		if node := placements[i].Node; !except[node] {
			all[node] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
