package planner

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// fillOpen places what it can of a batch on nodes that exist, are in flight or are planned already, in this order.
func (r *run) fillOpen(u *podBatch) {
	keys := u.CoarseKeys()
	for u.left > 0 {
		before := u.left
		places := r.places(u, keys)
		if u.refusing = nil; len(places) == 0 {
			return
		}
		r.fillPlaces(u, places, len(keys) > 0)
		if len(keys) > 0 {
			u.refusing = idle(places)
		}
		// If every node has got one more pod, the least count of a spread over host names has risen, so nodes may be allowed more pods.
		if u.left == before || !u.SpreadsOverHosts() {
			return
		}
	}
}

// idle returns the places with only those nodes that are initialized and have no pods, running or planned, but DaemonSets'.
func idle(all []*places) []*places {
	var out []*places
	for _, p := range all {
		var nodes []*node
		for _, n := range p.nodes {
			if !n.planned() && !n.view.InFlight && len(n.content) == 0 && !slices.ContainsFunc(n.view.Pods, func(pod *corev1.Pod) bool { return objects.DaemonSetKey(pod) == "" }) {
				nodes = append(nodes, n)
			}
		}
		if len(nodes) > 0 {
			out = append(out, &places{nodes: nodes})
		}
	}
	return out
}

// places are nodes with the same values for the labels that matter to a batch.
type places struct {
	nodes []*node // not tried yet
}

// places returns the nodes that have capacity for a pod of the batch and admit it, grouped by their values for the keys.
func (r *run) places(u *podBatch, keys []string) []*places {
	var out []*places
	index := map[string]*places{}
	for _, n := range r.nodes {
		if n.gone || packing.Fits(n.free, u.need, 1) == 0 || !r.admits(u, n) || u.RoomOn(n.index, 1, r) == 0 {
			continue
		}
		id := valuesOf(n, keys, r.labelIfPlaced)
		p, ok := index[id]
		if !ok {
			p = &places{}
			index[id] = p
			out = append(out, p)
		}
		p.nodes = append(p.nodes, n)
	}
	return out
}

// valuesOf joins a node's values for the keys. That a node lacks a label is a value of its own.
func valuesOf(n *node, keys []string, label func(n *node, key string) (string, bool)) string {
	var values strings.Builder
	for _, key := range keys {
		v, ok := label(n, key)
		values.WriteString(v)
		if !ok {
			values.WriteByte(1)
		}
		values.WriteByte(0)
	}
	return values.String()
}

// labelIfPlaced returns the label's value that a node would have once a pod which depends on that label is placed there.
func (r *run) labelIfPlaced(n *node, key string) (string, bool) {
	if n.planned() {
		return r.catalog.Label(n.candidate, key)
	}
	return n.view.Label(key)
}

// admits reports whether the batch's pods may be on the node, apart from capacity and other pods.
func (r *run) admits(u *podBatch, n *node) bool {
	if n.planned() {
		return u.candidates.Has(n.candidate)
	}
	if n.view.Closed || n.view.Unschedulable && !capacity.Tolerates(u.Tolerations, &unschedulableTaint) || r.forbiddenNode[forbiddenNode{u.Key, n.view.Name}] {
		return false
	}
	return u.asks.Tolerates(n.view.Taints) == nil && u.asks.Matches(n.view.Label)
}

// fillPlaces places pods of the batch in the domain with the fewest pods, one by one if labels matter.
func (r *run) fillPlaces(u *podBatch, all []*places, coarse bool) {
	for u.left > 0 {
		var best *places
		var bestTally topology.Tally
		for _, p := range all {
			if len(p.nodes) == 0 {
				continue
			}
			where := r.siteIfPlaced(p.nodes[0])
			if coarse && !u.Allows(where) {
				continue
			}
			if c := u.Tally(where); best == nil || c.Less(bestTally) {
				best, bestTally = p, c
			}
		}
		if best == nil {
			return
		}
		n := best.nodes[0]
		k := packing.Fits(n.free, u.need, u.left)
		if coarse {
			k = min(k, 1)
		}
		if k = u.RoomOn(n.index, k, r); k == 0 {
			best.nodes = best.nodes[1:]
			continue
		}
		r.place(u, n, k)
	}
}

var unschedulableTaint = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
