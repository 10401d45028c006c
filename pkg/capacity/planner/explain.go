package planner

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// explanation is an Explanation that is being written.
type explanation struct{ capacity.Explanation }

// explain returns explanations for the pods that Options.Explain names, in that order; it leaves out pods that aren't in the demand. It
// must be the last use of a run, since it removes pods and evaluates again.
func (r *run) explain(plan *capacity.Plan, ids map[*node]string) []capacity.Explanation {
	var out []capacity.Explanation
	for _, uid := range r.opts.Explain {
		for _, u := range r.podBatches {
			i := slices.IndexFunc(u.holders, func(h holder) bool { return h.owner == "" && h.pod.UID == uid })
			if i < 0 {
				continue
			}
			e := explanation{capacity.Explanation{Pod: u.holders[i].pod}}
			at := slices.IndexFunc(plan.Placements, func(p capacity.Placement) bool { return p.Owner == "" && p.Pod.UID == uid })
			if at < 0 {
				r.explainRefusal(u, &e)
			} else {
				e.Node = plan.Placements[at].Node
				r.explainPlacement(u, r.nodeOfID(e.Node, ids), &e)
			}
			out = append(out, e.Explanation)
			break
		}
	}
	return out
}

func (r *run) nodeOfID(id string, ids map[*node]string) *node {
	for _, n := range r.nodes {
		if ids[n] == id {
			return n
		}
	}
	return nil // not reached: every placement's node has an ID
}

func (e *explanation) say(format string, args ...any) {
	e.Lines = append(e.Lines, fmt.Sprintf(format, args...))
}

func (r *run) explainRefusal(u *podBatch, e *explanation) {
	e.say("it fits nowhere")
	u.level = len(u.steps)
	r.relax(u)
	r.explainOthers(u, nil, e)
	for _, p := range r.catalog.Pools {
		reason, _ := r.reason(u, p)
		e.say("pool %s: %s", p.Name, reason)
	}
}

func (r *run) explainPlacement(u *podBatch, n *node, e *explanation) {
	for _, s := range n.content {
		if s.podBatch == u {
			u.level = s.level
		}
	}
	r.relax(u)
	if n.planned() {
		r.explainNode(n, e)
	} else if n.view.InFlight {
		e.say("it is on node %s, which is being launched and has capacity for it", n.view.Name)
	} else {
		e.say("it is on node %s, which exists and has capacity for it", n.view.Name)
	}
	// The pod must not conflict with itself.
	r.tally(u, n, -1)
	r.explainOthers(u, n, e)
	if n.planned() {
		r.explainCost(u, n, e)
		r.explainPools(u, n, e)
	}
	r.explainConstraints(u, n, e)
	r.explainPreferences(u, e)
	r.tally(u, n, 1)
}

// explainNode describes a new node and its usage.
func (r *run) explainNode(n *node, e *explanation) {
	t := &n.shape.template
	where := ""
	if zone, ok := t.Labels[capacity.LabelZone]; ok {
		where = " in " + zone
	}
	pods := 0
	for _, s := range n.content {
		pods += s.n
	}
	company := "which it has for itself"
	if pods > 1 {
		company = fmt.Sprintf("with %d pods in all", pods)
	}
	e.say("it is on a new node of pool %s: %s, %s%s, at %s $/h, %s", t.Pool.Name, t.Offers[0].Type.Name, t.CapacityType, where, dollars(t.Price), company)
	if t.Covered.Commitment != "" {
		e.say("the commitment %s pays for the node, so that it costs nothing more", t.Covered.Commitment)
	}
	var use []string
	asked := r.requests(n)
	for _, name := range r.dims.Resources {
		if room := t.Offers[0].Type.Allocatable[name]; room > 0 && asked[name] > 0 {
			use = append(use, fmt.Sprintf("%.0f %% of its %s", 100*float64(asked[name])/float64(room), name))
		}
	}
	types := map[*capacity.InstanceType]bool{}
	for _, o := range t.Offers {
		types[o.Type] = true
	}
	if whole := n.shape.whole; whole != nil {
		first := &whole.template.Offers[0]
		e.say("zone %s was chosen because the pool has the fewest nodes there (annotation %s); in %s the node would cost %s $/h", t.Labels[capacity.LabelZone],
			objects.AnnotationZoneBalance, first.Offer.Zone, dollars(first.Offer.Price))
	}
	e.say("the pods planned for the node, daemons included, use %s; %d instance types hold them, and this is the cheapest", strings.Join(use, ", "), len(types))
}

func dollars(v float64) string { return fmt.Sprintf("%.4f", v) }

// explainOthers counts the reasons why nodes before n, or all existing nodes, don't take the pod.
func (r *run) explainOthers(u *podBatch, n *node, e *explanation) {
	counts := map[string]int{}
	total := 0
	for _, other := range r.nodes[:r.existing] {
		if other == n {
			break
		}
		counts[r.whyNot(u, other)]++
		total++
	}
	if total == 0 {
		return
	}
	var parts []string
	for _, why := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) }) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[why], why))
	}
	which := "of the nodes that are there"
	if n != nil && !n.planned() {
		which = "of the nodes that were tried before it"
	}
	e.say("%d %s don't take it: %s", total, which, strings.Join(parts, ", "))
}

// whyNot returns the first reason why an existing node takes no pod of the batch, worded to follow a number of nodes.
func (r *run) whyNot(u *podBatch, n *node) string {
	if n.view.Closed {
		return "about to be removed or not registered in time"
	}
	if n.view.Unschedulable && !capacity.Tolerates(u.Tolerations, &unschedulableTaint) {
		return "cordoned"
	}
	if r.forbiddenNode[forbiddenNode{u.Key, n.view.Name}] {
		return "refused by a filter of the scheduler"
	}
	if t := u.asks.Tolerates(n.view.Taints); t != nil {
		return "with the taint " + taintText(t)
	}
	hard := catalog.Asks{Terms: u.Terms}
	if !hard.Matches(n.view.Label) {
		return "without the labels it asks for"
	}
	for d, v := range u.need { // more free capacity would not have helped with the reasons above
		if v > n.free[d] {
			return "with too little " + r.dims.Name(d)
		}
	}
	if !u.asks.Matches(n.view.Label) {
		return "without the labels it prefers"
	}
	if u.RoomOn(n.index, 1, r) == 0 {
		return "where other pods or host ports stand in its way"
	}
	if !u.Allows(r.siteIfPlaced(n)) {
		return "where its spread or affinity doesn't allow it"
	}
	return "that others of the plan had filled when its turn came" // capacity that is free in the end may not have been free then
}

// explainCost compares the pod's share of its node with a node to itself.
func (r *run) explainCost(u *podBatch, n *node, e *explanation) {
	alone, best := -1, math.Inf(1)
	for b := range r.catalog.Candidates {
		if u.offered.Has(b) && r.catalog.Candidates[b].Pool == r.catalog.Candidates[n.candidate].Pool && packing.Fits(r.catalog.RoomOf(b), u.need, 1) > 0 && r.catalog.Candidates[b].Price < best {
			alone, best = b, r.catalog.Candidates[b].Price
		}
	}
	if alone < 0 {
		return
	}
	e.say("its share of the node costs %s $/h; the cheapest node of its own would be %s at %s $/h", dollars(r.shareCost(u, n.shape.candidates[0])),
		r.catalog.TypeOf(alone).Name, dollars(r.catalog.Candidates[alone].Offer.Price))
}

// explainPools says why the node isn't from another pool.
func (r *run) explainPools(u *podBatch, n *node, e *explanation) {
	own := r.catalog.Pools[r.catalog.Candidates[n.candidate].Pool]
	for _, p := range r.catalog.Pools {
		if p == own {
			continue
		}
		reason, retry := r.reason(u, p)
		if p.Tier > own.Tier && retry && p.Unready == "" { // otherwise it would refuse the pod, whatever its weight
			e.say("pool %s comes after pool %s by weight", p.Name, own.Name)
			continue
		}
		if reason == noReason && p.Tier == own.Tier {
			reason = "it could hold the pod, but the plan with this node is cheaper"
		}
		e.say("pool %s (weight %d): %s", p.Name, p.Weight, reason)
	}
}

// explainConstraints says where the pods are that its constraints count.
func (r *run) explainConstraints(u *podBatch, n *node, e *explanation) {
	for i := range u.Owned {
		o := &u.Owned[i]
		g := o.Group
		if g.Host {
			continue
		}
		what := o.Kind.Explain(o)
		if !o.Hard() {
			what = "preferred " + what
		}
		at, ok := r.label(n, g.Key)
		if !ok {
			at = "none"
		}
		counts := r.topo.Counted(g)
		if len(counts) == 0 {
			counts = []string{"none"}
		}
		e.say("%s over %s, here %s; other pods that it counts: %s", what, g.Key, at, strings.Join(counts, ", "))
	}
}

// explainPreferences lists the preferences that were dropped because they could not all be met.
func (r *run) explainPreferences(u *podBatch, e *explanation) {
	if u.level == 0 {
		return
	}
	counts := map[topology.Step]int{}
	for _, s := range u.steps[:u.level] {
		counts[s]++
	}
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", topology.Steps[s], counts[s]))
	}
	if r.opts.IgnorePreferences {
		e.say("preferences are ignored by setting: %s", strings.Join(parts, ", "))
		return
	}
	e.say("preferences that were given up, since nothing met them: %s", strings.Join(parts, ", "))
}
