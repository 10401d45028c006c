package topology

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// spread is the kind of constraint that a topologySpreadConstraint makes.
type spread struct {
	minDomains int // 0: unset
}

// spreadConstraints makes the batch's constraints that spread its pods.
func spreadConstraints(t *Groups, u *Batch) {
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
		f := &nodeFilter{taints: s.NodeTaintsHonor, Keys: hardKeys}
		if !s.Hard {
			f.Keys = []string{s.TopologyKey}
		}
		if s.NodeAffinityHonor {
			f.Terms = u.TermsWithoutVolumes()
		}
		if s.NodeTaintsHonor {
			f.tolerations = u.Tolerations
		}
		g := t.group("spread"+termID(term)+f.id(), term)
		g.Filter = f
		o := Constraint{Effect: Spreads, Group: g, Step: required, skew: int(s.MaxSkew)}
		if s.Hard {
			o.Kind = spread{minDomains: int(s.MinDomains)}
		} else {
			o.Kind, o.Step, o.Rank = spread{}, dropSoftSpread, soft
			soft++
		}
		u.All = append(u.All, o)
	}
}

func (spread) Limit(o *Constraint) (int, bool) { return o.skew, o.Group.Host }

func (s spread) allows(o *Constraint, _ *Batch, d int, ok bool) bool {
	return ok && o.Group.Counts[d]+o.own() <= o.skew+o.Group.least(s.minDomains, d)
}

func (s spread) room(o *Constraint, _ *Batch, node, k int, all hosts) int {
	limit := o.skew
	if o.Group.Counts[node]+k > limit {
		limit += all.Least(o.Group, s.minDomains)
	}
	return o.within(limit, node, k)
}

func (spread) Refusal(o *Constraint, _ *Batch) string {
	if o.Group.Host {
		return "" // a new node has no pods yet
	}
	return fmt.Sprintf("topology spread over %s with maxSkew %d allows no domain", o.Group.Key, o.skew)
}

func (spread) Explain(o *Constraint) string {
	return fmt.Sprintf("topology spread (maxSkew %d)", o.skew)
}
