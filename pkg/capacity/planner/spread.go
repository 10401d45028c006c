package planner

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// spread is the kind of topologySpreadConstraints.
type spread struct {
	minDomains int // 0: unset
}

// spreadConstraints makes the batch's constraints that spread its pods.
func spreadConstraints(t *topology, u *batch) {
	soft := 0
	var hardKeys []string
	for _, s := range u.Spread {
		if s.Hard {
			hardKeys = append(hardKeys, s.TopologyKey)
		}
	}
	for i := range u.Spread {
		s := &u.Spread[i]
		term := &capacity.PodTerm{TopologyKey: s.TopologyKey, Selector: s.Selector, Namespaces: []string{u.Namespace}}
		if s.Selector.Empty() {
			// PodTopologySpread counts no pods for a selector that matches all of them (countPodsMatchSelector). Only the requirement
			// that the node has the label is left of the constraint.
			term.Selector = labels.Nothing()
		}
		f := &nodeFilter{taints: s.NodeTaintsHonor, keys: hardKeys}
		if !s.Hard {
			f.keys = []string{s.TopologyKey}
		}
		if s.NodeAffinityHonor {
			f.terms = u.TermsWithoutVolumes()
		}
		if s.NodeTaintsHonor {
			f.tolerations = u.Tolerations
		}
		g := t.group("spread"+termID(term)+f.id(), term)
		g.filter = f
		o := constraint{effect: spreads, group: g, step: required, skew: int(s.MaxSkew)}
		if s.Hard {
			o.kind = spread{minDomains: int(s.MinDomains)}
		} else {
			o.kind, o.step, o.rank = spread{}, dropSoftSpread, soft
			soft++
		}
		u.all = append(u.all, o)
	}
}

func (spread) limit(o *constraint) (int, bool) { return o.skew, o.group.host }

func (s spread) allows(o *constraint, _ *batch, d int, ok bool) bool {
	return ok && o.group.counts[d]+o.own() <= o.skew+o.group.least(s.minDomains, d)
}

func (s spread) room(o *constraint, _ *batch, node, k int, all hosts) int {
	limit := o.skew
	if o.group.counts[node]+k > limit {
		limit += all.least(o.group, s.minDomains)
	}
	return o.within(limit, node, k)
}

func (spread) refusal(o *constraint, _ *batch) string {
	if o.group.host {
		return "" // a new node has no pods yet
	}
	return fmt.Sprintf("topology spread over %s with maxSkew %d allows no domain", o.group.key, o.skew)
}

func (spread) explain(o *constraint) string {
	return fmt.Sprintf("topology spread (maxSkew %d)", o.skew)
}
