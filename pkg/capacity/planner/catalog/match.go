package catalog

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// Asks is what a pod requires of a node, apart from capacity.
type Asks struct {
	Terms       []capacity.Requirements
	Tolerations []corev1.Toleration
	// Preferred: PreferNoSchedule taints needn't be tolerated, either because the preference to avoid them was dropped or because it doesn't matter.
	Preferred bool
	// Scheduler is the pod's scheduler; empty: every pool may be used.
	Scheduler string
}

// Tolerates returns the first taint that is not tolerated, or nil.
func (a *Asks) Tolerates(taints []corev1.Taint) *corev1.Taint {
	for i := range taints {
		if a.Preferred && taints[i].Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !capacity.Tolerates(a.Tolerations, &taints[i]) {
			return &taints[i]
		}
	}
	return nil
}

// Matches reports whether a node with these labels satisfies one of the terms.
func (a *Asks) Matches(label func(key string) (string, bool)) bool {
	return capacity.MatchAny(a.Terms, label)
}

// ID is equal for equal asks.
func (a *Asks) ID() string {
	k := make(capacity.KeyBytes, 0, 256)
	k.Count(len(a.Terms))
	for _, t := range a.Terms {
		k.Requirements(t)
	}
	for i := range a.Tolerations {
		t := &a.Tolerations[i]
		k.Text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	k.Text(strconv.FormatBool(a.Preferred), a.Scheduler)
	return string(k)
}

// Matching returns the candidates that satisfy a. The set is shared and must not be changed.
func (c *Catalog) Matching(a *Asks) packing.Bits {
	id := a.ID()
	out, known := c.matched[id]
	if !known {
		out = c.match(a)
		c.matched[id] = out
	}
	return out
}

func (c *Catalog) match(a *Asks) packing.Bits {
	out := packing.NewBits(len(c.Candidates))
	for _, p := range c.Pools {
		if !p.Serves(a.Scheduler) || a.Tolerates(p.Taints) != nil {
			continue
		}
		terms := a.Terms
		if len(terms) == 0 {
			terms = []capacity.Requirements{nil}
		}
		for _, term := range terms {
			p.match(c, term, out)
		}
	}
	return out
}

// match adds the pool's candidates that satisfy a term to out.
func (p *PoolOffers) match(c *Catalog, term capacity.Requirements, out packing.Bits) {
	var offerwise []capacity.Requirement
	typewise := make([]capacity.Requirement, 0, len(term))
	for key, r := range term {
		if capacity.OfferLabel(key) {
			offerwise = append(offerwise, r)
		} else {
			typewise = append(typewise, r)
		}
	}
	ok := make([]bool, len(p.Allowed))
next:
	for v := range p.LabelChoices {
		for t := range ok {
			ok[t] = true
		}
		for _, r := range typewise {
			if value, has := p.LabelChoices[v].Labels[r.Key]; has {
				if !r.Has(value) {
					continue next
				}
				continue
			}
			p.matchColumn(r, ok)
		}
	candidates:
		for b := p.LabelChoices[v].First; b < p.LabelChoices[v].Last; b++ {
			if !ok[c.Candidates[b].typ] {
				continue
			}
			for _, r := range offerwise {
				if value, has := c.Label(b, r.Key); has && !r.Has(value) || !has && !r.AllowsAbsent() {
					continue candidates
				}
			}
			out.Set(b)
		}
	}
}

// matchColumn clears ok for the types whose label does not satisfy r.
func (p *PoolOffers) matchColumn(r capacity.Requirement, ok []bool) {
	col := p.column(r.Key)
	has := make([]bool, len(col.values))
	for i, v := range col.values {
		has[i] = r.Has(v)
	}
	for t, i := range col.of {
		if i >= 0 && !has[i] || i < 0 && !r.AllowsAbsent() {
			ok[t] = false
		}
	}
}
