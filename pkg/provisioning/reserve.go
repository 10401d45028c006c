package provisioning

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/moves"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// attempt is a move of a proposal, for which capacity is to be reserved.
type attempt struct {
	*consolidation.Move
	// successors are the pods that will be created in place of the placements' pods; from are the nodes that the placements' pods leave.
	successors []*corev1.Pod
	from       []string
	pods       map[types.UID]*corev1.Pod // all pods on the move's nodes, as they are now
	fenced     bool                      // the move's nodes are cordoned in the ledger on its behalf
	// why the move can't be made; empty: it can, as far as is known.
	why string
}

func (a *attempt) fail(format string, args ...any) {
	if a.why == "" {
		a.why = fmt.Sprintf(format, args...)
	}
}

// verifyTries bounds how often the filters verify the moves of a proposal: each time without the moves of which they have refused a pod.
const verifyTries = 5

// conclude reserves capacity for the moves of a proposal, and makes its result.
//
//  1. Cordon the nodes of the moves in the ledger: from now on no pod comes to them.
//  2. Take a view, and find the moves' pods in it.
//  3. Have the profile's filters verify all moves together, with the pods gone from their nodes and with the new nodes there. If a pod of a move is
//     refused, the others are verified anew as if its nodes stayed as they are.
//  4. Reserve what is left. A move that needs new nodes is bought as a whole or not at all.
//  5. Lift the cordons of the moves that can't be made.
func (c *Consolidation) conclude(ctx context.Context, p *proposed) {
	start := c.clock.Now()
	out := &consolidation.Result{Kept: p.Kept}
	defer func() {
		out.Took = p.took + c.clock.Since(start)
		c.passes.finish(out)
	}()
	if p.only {
		for i := range p.Moves {
			out.Moves = append(out.Moves, consolidation.Due{Move: p.Moves[i]})
		}
		return
	}
	var all []*attempt
	for i := range p.Moves {
		all = append(all, &attempt{Move: &p.Moves[i]})
	}
	defer func() {
		for _, a := range all {
			if a.why == "" {
				continue
			}
			if a.fenced {
				c.planning.viewer.reservations.Step(func(l *ledger.Ledger, _ time.Time) {
					for _, node := range a.Nodes {
						l.Unfence(node)
					}
				})
			}
			for _, node := range a.Nodes {
				out.Kept = append(out.Kept, consolidation.Kept{Node: node, Kind: consolidation.OtherReason, Saves: a.Saves, Message: a.why})
			}
		}
	}()
	if c.clock.Since(p.at) > proposalHolds {
		for _, a := range all {
			a.fail("pods that waited came first")
		}
		return
	}
	if len(all) == 0 {
		return
	}
	c.cordon(all)
	v, err := c.view(ctx, p.lift)
	if err == nil {
		c.match(v, all, p.known)
		err = c.verify(ctx, v, all)
	}
	if err != nil {
		for _, a := range all {
			a.fail("its move could not be verified: %v", err)
		}
		return
	}
	out.Moves = c.reserve(ctx, v, all, p.lift)
	klog.FromContext(ctx).V(2).Info("Reserved capacity for the moves of a consolidation pass", "proposed", len(all), "reserved", len(out.Moves))
}

// cordon cordons the nodes of the moves, except those of moves that can't be made.
func (c *Consolidation) cordon(all []*attempt) {
	for _, a := range all {
		// This pass may have been requested before other moves were reserved. Then cordon and reservations belong to the other move.
		if slices.ContainsFunc(a.Nodes, c.Empties) {
			a.fail("another move empties the node")
			continue
		}
		if a.Reason == consolidation.Drifted { // those nodes have to end
			c.planning.viewer.reservations.Step(func(l *ledger.Ledger, _ time.Time) {
				for _, node := range a.Nodes {
					l.GiveUpChunks(node)
				}
			})
		}
		if a.fenced = c.fence(a.Nodes); !a.fenced {
			a.fail("a pod is planned for the node, or is being bound to it")
		}
	}
}

// fence cordons nodes in the ledger, all or none.
func (c *Consolidation) fence(nodes []string) bool {
	for i, node := range nodes {
		if !c.planning.viewer.reservations.Fence(node) {
			for _, before := range nodes[:i] {
				c.planning.viewer.reservations.Unfence(before)
			}
			return false
		}
	}
	return true
}

// match finds the moves' pods in a view that was taken after the cordons, and drops the placements of pods that have left meanwhile. A pod that has
// come meanwhile has no reservation: what was launched for the move would be of no use. known are the pods that the moves were planned from.
func (c *Consolidation) match(v *View, all []*attempt, known map[types.UID]bool) {
	nodes := make(map[string]*capacity.Node, len(v.Nodes))
	for _, n := range v.Nodes {
		nodes[n.Name] = n
	}
	offers, left := offersOf(v.Pools), v.Coverage
	for _, a := range all {
		if a.why != "" {
			continue
		}
		a.pods = map[types.UID]*corev1.Pod{}
		for _, node := range a.Nodes {
			n := nodes[node]
			if n == nil {
				a.fail("the node is gone")
				break
			}
			for _, pod := range n.Pods {
				if pod.Spec.NodeName == node {
					a.pods[pod.UID] = pod
				}
			}
		}
		c.matchPods(a, nodes)
		if pod := c.Newcomer(a.pods, a.Placements, known); pod != nil {
			a.fail("pod %s has come to the node since the move was planned", klog.KObj(pod))
		}
		for _, n := range a.New {
			if why := changed(offers, n, a.Reason == consolidation.Drifted); why != "" {
				a.fail("%s", why)
			}
			if n.Covered.Commitment != "" && a.Reason == consolidation.Underutilized && a.why == "" {
				var ok bool
				if left, ok = left.With(&n.Covered); !ok {
					a.fail("too little is left of commitment %s for %s", n.Covered.Commitment, n.Offers[0].Type.Name)
				}
			}
		}
	}
}

func (c *Consolidation) matchPods(a *attempt, nodes map[string]*capacity.Node) {
	planned := map[string]bool{}
	for _, n := range a.New {
		planned[n.ID] = true
	}
	var left []capacity.Placement
	for _, pl := range a.Placements {
		pod := a.pods[pl.Pod.UID]
		if pod == nil {
			continue
		}
		next, class, err := c.planning.pending.Classes.Successor(pod)
		switch n := nodes[pl.Node]; {
		case err != nil:
			a.fail("pod %s: %v", klog.KObj(pod), err)
		case class.Key != pl.Class.Key:
			a.fail("pod %s has changed", klog.KObj(pod))
		case !planned[pl.Node] && (n == nil || n.Closed):
			a.fail("node %s, where a pod was to go, can't take it any more", pl.Node)
		case len(a.New) > 0 && c.namespaces.MayLaunch(pod.Namespace) != nil:
			a.fail("pod %s: %v", klog.KObj(pod), c.namespaces.MayLaunch(pod.Namespace))
		}
		left = append(left, pl)
		a.successors, a.from = append(a.successors, next), append(a.from, pod.Spec.NodeName)
	}
	a.Placements = left
}

// offersOf returns the prices of all offerings that are available now, by pool.
func offersOf(pools []*capacity.Pool) map[string]map[capacity.OfferKey]float64 {
	out := map[string]map[capacity.OfferKey]float64{}
	for _, p := range pools {
		of := map[capacity.OfferKey]float64{}
		for _, t := range p.Types {
			for _, o := range t.Offers {
				if o.Available {
					of[capacity.NodeOffer{Type: t, Offer: o}.Key()] = o.Price
				}
			}
		}
		out[p.Name] = of
	}
	return out
}

// changed returns why a new node can't be bought as it was proposed. A price that has risen is a reason unless anyPrice: such moves don't save money.
func changed(offers map[string]map[capacity.OfferKey]float64, n *capacity.PlannedNode, anyPrice bool) string {
	of, ok := offers[n.Pool.Name]
	if !ok {
		return "pool " + n.Pool.Name + " is gone"
	}
	for _, o := range n.Offers {
		switch price, there := of[o.Key()]; {
		case !there:
			return fmt.Sprintf("%s in %s is not available any more", o.Type.Name, o.Offer.Zone)
		case price > o.Offer.Price && !anyPrice:
			return fmt.Sprintf("the price of %s in %s has risen", o.Type.Name, o.Offer.Zone)
		}
	}
	return ""
}

// verify has the profile's filters verify the moves together. What they refuse is not proposed again for a while.
func (c *Consolidation) verify(ctx context.Context, v *View, all []*attempt) error {
	objects := map[string]*corev1.Node{}
	sources := map[string]bool{}
	for _, a := range all {
		for _, node := range a.Nodes {
			sources[node] = a.why == ""
		}
	}
	c.planning.world.Nodes(func(n *capacity.Node, o *corev1.Node) *capacity.Node {
		if sources[n.Name] {
			objects[n.Name] = o
		}
		return n
	})
	for try := range verifyTries {
		trial, of := c.trial(v, all, objects)
		if len(trial.Steps) == 0 {
			return nil
		}
		rejected, err := c.planning.world.Verify(ctx, trial)
		if err != nil {
			return fmt.Errorf("running the profile's filters: %w", err)
		}
		if len(rejected) == 0 {
			return nil
		}
		for _, r := range rejected {
			a, i := of[r.Step].attempt, of[r.Step].placement
			pl := a.Placements[i]
			f := capacity.Forbidden{Class: pl.Class.Key, Node: pl.Node}
			for _, n := range a.New {
				if n.ID == pl.Node {
					f = newNode(pl.Class.Key, n)
				}
			}
			f.Plugin, f.Reason = r.Plugin, r.Reason
			c.refused.Refuse(f)
			a.fail("the scheduler's %s filter refuses pod %s/%s on node %s: %s", r.Plugin, pl.Pod.Namespace, pl.Pod.Name, pl.Node, r.Reason)
		}
		if try == verifyTries-1 {
			for _, a := range all {
				a.fail("the scheduler's filters refuse it together with other moves")
			}
		}
	}
	return nil
}

// stepOf says which placement of which move a step of a trial verifies; placement is an index in attempt.Placements.
type stepOf struct {
	attempt   *attempt
	placement int
}

// trial returns the request by which the filters verify all moves that can be made as far as is known, and for each of its steps the placement that
// it verifies. Nodes that are emptied have the disrupted taint, and keep the pods that don't move.
func (c *Consolidation) trial(v *View, all []*attempt, objects map[string]*corev1.Node) (capacity.Trial, []stepOf) {
	t := capacity.Trial{Promised: v.Promised, Nodes: slices.Clone(v.Hypothetical), AnyOrder: true}
	var of []stepOf
	emptied := map[string]map[types.UID]bool{}
	for _, a := range all {
		if a.why != "" {
			continue
		}
		for _, node := range a.Nodes {
			emptied[node] = map[types.UID]bool{}
		}
		for i, pl := range a.Placements {
			emptied[a.from[i]][pl.Pod.UID] = true
		}
	}
	for _, n := range v.Nodes {
		gone, o := emptied[n.Name], objects[n.Name]
		if gone == nil || o == nil {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(n.Pods), func(p *corev1.Pod) bool { return gone[p.UID] })
		t.Nodes = append(t.Nodes, capacity.TrialNode{Node: disrupted(o), Pods: left, Instead: true})
	}
	for _, a := range all {
		if a.why != "" {
			continue
		}
		for _, n := range a.New {
			t.Nodes = append(t.Nodes, capacity.TrialNode{Node: c.planning.nodes.PlannedNode(n, n.ID), Pods: daemonPods(n.ID, n.Daemons), Devices: DevicesOf(n)})
		}
		for i := range a.Placements {
			of = append(of, stepOf{a, i})
		}
	}
	c.order(v, of)
	for _, s := range of {
		pl := &s.attempt.Placements[s.placement]
		t.Steps = append(t.Steps, capacity.Step{Pod: s.attempt.successors[s.placement], Class: pl.Class.Key, Node: pl.Node})
	}
	return t, of
}

// order has pods of a class placed in their zones in turn, first where most are to go, so that a spread refuses few of them at the first try.
func (c *Consolidation) order(v *View, steps []stepOf) {
	type domain struct {
		class capacity.ClassKey
		zone  string
	}
	zones := map[string]string{}
	for _, n := range v.Nodes {
		zones[n.Name] = n.Labels[corev1.LabelTopologyZone]
	}
	lacks, left := map[domain]int{}, make(map[stepOf]int, len(steps))
	for _, s := range steps {
		for _, n := range s.attempt.New {
			zones[n.ID] = n.Labels[corev1.LabelTopologyZone]
		}
	}
	for _, s := range slices.Backward(steps) {
		pl := &s.attempt.Placements[s.placement]
		at := domain{pl.Class.Key, zones[pl.Node]}
		lacks[at]++
		left[s] = lacks[at]
	}
	slices.SortStableFunc(steps, func(a, b stepOf) int { return left[b] - left[a] })
}

// disrupted returns a copy of a Node with the disrupted taint.
func disrupted(o *corev1.Node) *corev1.Node {
	o = o.DeepCopy()
	o.Spec.Taints = append(slices.DeleteFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == capacity.TaintDisrupted }),
		corev1.Taint{Key: capacity.TaintDisrupted, Effect: corev1.TaintEffectNoSchedule})
	return o
}

// reserve reserves capacity for the moves that can be made, and returns those for which that worked. Their new nodes may probe the breakers in lift.
func (c *Consolidation) reserve(ctx context.Context, v *View, all []*attempt, lift []guard.Key) (out []consolidation.Due) {
	for _, a := range all {
		if a.why != "" {
			continue
		}
		if due := c.commit(ctx, v, a, lift); due != nil {
			out = append(out, *due)
		}
	}
	return out
}

// commit reserves capacity for one move; nil: it could not, and a.why says why.
func (c *Consolidation) commit(ctx context.Context, v *View, a *attempt, lift []guard.Key) *consolidation.Due {
	reserved := false
	place := func(l *ledger.Ledger, id string, placements []capacity.Placement, now time.Time) {
		for i := range placements {
			pl := &placements[i]
			pl.Owner, pl.Pod = objects.Controller(a.pods[pl.Pod.UID]), capacity.PodRef{}
		}
		reserved = len(placements) == len(a.from) && l.Reserve(id, placements, a.from, now.Add(moves.Hold), now)
	}
	plan := &capacity.Plan{Nodes: slices.Clone(a.New), Placements: slices.Clone(a.Placements)}
	for _, n := range a.New {
		plan.CostPerHour += n.Price
	}
	terms := Terms{Moves: true, Whole: true, Pod: func(uid types.UID) *corev1.Pod { return a.pods[uid] }}
	if a.Reason == consolidation.Drifted {
		c.planning.probe(plan, &terms, lift)
	}
	made := c.committer.Commit(ctx, &Proposal{Plan: plan, Existing: v.Existing, Place: place, Terms: terms})
	if !reserved {
		if made.Why == "" {
			made.Why = "what was free for its pods has been taken"
		}
		a.fail("%s", made.Why)
		c.avoid(a)
		return nil
	}
	due := &consolidation.Due{Move: *a.Move, Key: a.Nodes[0], Claims: map[string]string{}}
	uses := map[string]bool{}
	for _, pl := range a.Placements {
		uses[pl.Node] = true
	}
	for id, claim := range made.Claims {
		due.Claims[id] = claim.Name
		delete(uses, id)
		uses[claim.Name] = true
	}
	c.Reserved(due.Key, *a.Move, uses)
	return due
}

// probe makes the new node of a plan, if it has exactly one, the probe of a breaker in lift that stops it, if a probe of that breaker is due.
func (p *planning) probe(plan *capacity.Plan, terms *Terms, lift []guard.Key) {
	if len(plan.Nodes) != 1 || len(lift) == 0 {
		return
	}
	due := p.spending.DueForMoves()
	workloads, _ := p.spending.WantedOn(plan, terms.Pod)
	for _, key := range lift {
		own := *plan.Nodes[0]
		if slices.Contains(due, key) && spending.Probes(key, &own, workloads[own.ID], p.spending.Tried(key)) {
			plan.Nodes[0], terms.Lifted, terms.Probe = &own, due, key
			return
		}
	}
}

// probes reports whether a new node would be a probe of one of the breakers in lift.
func (p *planning) probes(n *capacity.PlannedNode, workloads []guard.Workload, lift []guard.Key) bool {
	return slices.ContainsFunc(lift, func(key guard.Key) bool {
		own := *n
		return spending.Probes(key, &own, workloads, p.spending.Tried(key))
	})
}

// avoid keeps new nodes that could not be bought from being proposed again at once.
func (c *Consolidation) avoid(a *attempt) {
	planned := map[string]*capacity.PlannedNode{}
	for _, n := range a.New {
		planned[n.ID] = n
	}
	for _, pl := range a.Placements {
		if n := planned[pl.Node]; n != nil {
			f := newNode(pl.Class.Key, n)
			f.Reason = a.why
			c.refused.Refuse(f)
		}
	}
}
