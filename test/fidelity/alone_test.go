package fidelity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// option is a node that could be launched for a pod alone.
type option struct {
	pool  *capacity.Pool
	offer capacity.NodeOffer
	node  *capacity.PlannedNode
}

// options returns the nodes that could be launched for a pod of the class, cheapest first, looking only at the node itself. It
// computes them offer by offer, without the planner. Pools whose limits are used up, or that have minValues, have none.
func (w *planned) options(c *capacity.Class, limits map[*capacity.Pool]capacity.Resources, reserved map[string]int) []option {
	var out []option
	for _, p := range w.scene.pools {
		if p.Unready != "" || flexible(p) {
			continue
		}
		teams := []string{""}
		if r, open := p.Requirements[teamKey]; open {
			teams, _ = r.Values()
		}
		for _, typ := range p.Types {
			for _, o := range typ.Offers {
				if !o.Available || o.CapacityType == capacity.CapacityTypeReserved && o.Remaining <= reserved[o.ReservationID] || !within(limits[p], typ.Capacity, p.Limits) {
					continue
				}
				for _, team := range teams {
					if opt := w.option(c, p, capacity.NodeOffer{Type: typ, Offer: o}, team); opt != nil {
						out = append(out, *opt)
					}
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b option) int {
		return cmp.Or(int(b.pool.Weight-a.pool.Weight), cmp.Compare(a.offer.Offer.Price, b.offer.Offer.Price))
	})
	return out
}

// flexible reports whether the pool has minValues.
func flexible(p *capacity.Pool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(p.Requirements)), func(r capacity.Requirement) bool { return r.MinValues > 0 })
}

func within(used, more, limits capacity.Resources) bool {
	for name, limit := range limits {
		want := more[name]
		if name == capacity.ResourceNodes {
			want = 1
		}
		if used[name]+want > limit {
			return false
		}
	}
	return true
}

// option returns the offer as a node, or nil if it can't hold the pod.
func (w *planned) option(c *capacity.Class, p *capacity.Pool, o capacity.NodeOffer, team string) *option {
	l := maps.Clone(o.Type.Labels)
	l[zoneKey], l[ctKey] = o.Offer.Zone, o.Offer.CapacityType
	maps.Copy(l, o.Offer.Labels)
	maps.Copy(l, p.Labels)
	if team != "" {
		l[teamKey] = team
	}
	if !p.Requirements.Match(l) {
		return nil
	}
	n := &capacity.PlannedNode{Pool: p, CapacityType: o.Offer.CapacityType, Offers: []capacity.NodeOffer{o}, Labels: l, Allocatable: o.Type.Allocatable, Price: o.Offer.Price}
	object := karpenter.PlannedNodeObject(n, "alone")
	free := o.Type.Allocatable.Clone()
	for _, d := range w.scene.daemons {
		if runsOn(d.Class.Pod, object) {
			n.Daemons = append(n.Daemons, d)
			free.Sub(d.Class.Requests)
		}
	}
	for driver, volumes := range c.Volumes {
		if limit, limited := o.Type.VolumeLimits[driver]; limited && volumes > limit {
			return nil
		}
	}
	// A node that can't hold its DaemonSet pods is no option for any pod.
	if !c.Requests.Fits(free) || !(capacity.Resources{}).Fits(free) || slices.ContainsFunc(slices.Collect(maps.Values(free)), func(v int64) bool { return v < 0 }) || !matches(c.Pod, object) {
		return nil
	}
	return &option{pool: p, offer: o, node: n}
}

func runsOn(pod *corev1.Pod, node *corev1.Node) bool {
	return matches(pod, node) && capacity.Untolerated(pod.Spec.Tolerations, node.Spec.Taints) == nil
}

func matches(pod *corev1.Pod, node *corev1.Node) bool {
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return ok && err == nil
}

// taken returns what the plan uses of limits and reservations.
func (w *planned) taken() (map[*capacity.Pool]capacity.Resources, map[string]int) {
	limits, reserved := map[*capacity.Pool]capacity.Resources{}, map[string]int{}
	for _, p := range w.scene.pools {
		limits[p] = p.Used.Clone()
	}
	for _, n := range w.plan.Nodes {
		limits[n.Pool].Add(n.Largest, 1)
		limits[n.Pool][capacity.ResourceNodes]++
		if n.CapacityType == capacity.CapacityTypeReserved {
			reserved[n.Offers[0].Offer.ReservationID]++
		}
	}
	return limits, reserved
}

// notInVain checks that no pod is refused which one more node of some offer could host while all other pods stay where they are
// planned.
func (w *planned) notInVain() error {
	limits, reserved := w.taken()
	for _, r := range w.plan.Refused {
		if len(r.Pods) == 0 || w.scene.gangs[r.Pods[0].UID] != nil {
			continue
		}
		for _, opt := range w.options(r.Class, limits, reserved) {
			t := trial(w.view, w.plan, w.pods)
			t.Nodes = append(t.Nodes, capacity.TrialNode{Node: karpenter.PlannedNodeObject(opt.node, "alone"), Pods: daemonPods("alone", opt.node.Daemons)})
			t.Steps = append(t.Steps, capacity.Step{Pod: w.pods[r.Pods[0].UID], Class: r.Class.Key, Node: "alone"})
			if len(w.verify(w.tb, t)) == 0 && len(w.verify(w.tb, withoutDaemons(t))) == 0 {
				return fmt.Errorf("%s is refused (%s), but %s of pool %s, %s in %s, could host it", r.Pods[0].Name, r.Message, opt.offer.Type.Name, opt.pool.Name,
					opt.offer.Offer.CapacityType, opt.offer.Offer.Zone)
			}
		}
	}
	return nil
}

// withoutDaemons returns the trial before the DaemonSet pods exist, because no other pod may rely on being near them.
func withoutDaemons(t capacity.Trial) capacity.Trial {
	t.Nodes = slices.Clone(t.Nodes)
	for i := range t.Nodes {
		t.Nodes[i].Pods = nil
	}
	return t
}

// notDearer checks that the plan costs no more than one node per pod, each being the cheapest that the filters accept at that pod's
// turn. Preferences, limits and minValues may legitimately cost more, so the worlds of this check have none. Every zone and capacity
// type is represented from the start by an empty node, so that pods can be spread over it.
func (w *planned) notDearer() error {
	planned := map[string]bool{}
	cost := 0.0
	for _, n := range w.plan.Nodes {
		planned[n.ID] = true
		cost += n.Price
	}
	t := capacity.Trial{Promised: w.view.Promised, Nodes: slices.Clone(w.view.Hypothetical)}
	var alone []capacity.Placement
	for _, pl := range w.plan.Placements {
		if planned[pl.Node] {
			alone = append(alone, pl)
		} else {
			t.Steps = append(t.Steps, capacity.Step{Pod: w.pods[pl.Pod.UID], Class: pl.Class.Key, Node: pl.Node})
		}
	}
	limited := slices.ContainsFunc(w.scene.pools, func(p *capacity.Pool) bool { return p.Limits != nil || flexible(p) })
	if len(alone) == 0 || len(alone) > 12 || len(w.scene.gangs) > 0 || !w.scene.opts.IgnorePreferences || limited {
		return nil
	}
	for i, n := range w.domains() {
		t.Nodes = append(t.Nodes, capacity.TrialNode{Node: karpenter.PlannedNodeObject(n, fmt.Sprintf("empty-%d", i))})
	}
	if len(w.verify(w.tb, t)) > 0 {
		return nil
	}
	limits, reserved := map[*capacity.Pool]capacity.Resources{}, map[string]int{}
	for _, p := range w.scene.pools {
		limits[p] = p.Used.Clone()
	}
	plain := 0.0
	for i, pl := range alone {
		name := fmt.Sprintf("alone-%d", i)
		found := false
		tried := map[string]bool{}
		for _, opt := range w.options(pl.Class, limits, reserved) {
			if kind := fmt.Sprint(opt.pool.Name, opt.offer.Offer.Zone, opt.offer.Offer.CapacityType, opt.node.Labels[teamKey]); tried[kind] {
				continue // a cheaper node of this kind was refused already
			} else {
				tried[kind] = true
			}
			next := t
			next.Nodes = append(slices.Clip(t.Nodes), capacity.TrialNode{Node: karpenter.PlannedNodeObject(opt.node, name), Pods: daemonPods(name, opt.node.Daemons)})
			next.Steps = append(slices.Clip(t.Steps), capacity.Step{Pod: w.pods[pl.Pod.UID], Class: pl.Class.Key, Node: name})
			if len(w.verify(w.tb, next)) > 0 {
				continue
			}
			t, found = next, true
			plain += opt.offer.Offer.Price
			limits[opt.pool].Add(opt.offer.Type.Capacity, 1)
			limits[opt.pool][capacity.ResourceNodes]++
			if opt.offer.Offer.CapacityType == capacity.CapacityTypeReserved {
				reserved[opt.offer.Offer.ReservationID]++
			}
			break
		}
		if !found {
			return nil // one node per pod isn't possible at all
		}
	}
	if cost > plain*(1+1e-9) {
		return fmt.Errorf("costs %v, and %v with a node per pod:\n%s", cost, plain, nodesOf(t))
	}
	return nil
}

// domains returns nodes without capacity, one for each set of labels that pods could be spread over.
func (w *planned) domains() []*capacity.PlannedNode {
	var out []*capacity.PlannedNode
	seen := map[string]bool{}
	anything := &capacity.Class{Pod: &corev1.Pod{}}
	for _, opt := range w.options(anything, nil, nil) {
		l := opt.node.Labels
		if id := fmt.Sprint(opt.pool.Name, l[zoneKey], l[ctKey], l[teamKey], l[familyKey]); !seen[id] {
			seen[id] = true
			n := *opt.node
			n.Allocatable = capacity.Resources{}
			out = append(out, &n)
		}
	}
	return out
}

func nodesOf(t capacity.Trial) string {
	out := ""
	on := map[string][]types.UID{}
	for _, s := range t.Steps {
		on[s.Node] = append(on[s.Node], s.Pod.UID)
	}
	for _, n := range t.Nodes {
		if len(on[n.Node.Name]) == 0 {
			continue
		}
		l := n.Node.Labels
		out += fmt.Sprintf("  %s %s %s %s %s: %v\n", n.Node.Name, l[corev1.LabelInstanceTypeStable], l[ctKey], l[zoneKey], l[teamKey], on[n.Node.Name])
	}
	return out
}
