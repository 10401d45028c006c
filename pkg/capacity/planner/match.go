package planner

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// asks is what a pod requires of a node, apart from capacity.
type asks struct {
	terms       []capacity.Requirements
	tolerations []corev1.Toleration
	// preferred: PreferNoSchedule taints needn't be tolerated.
	preferred bool
	// scheduler is the pod's scheduler; empty: every pool may be used.
	scheduler string
}

// tolerates returns the first taint that is not tolerated, or nil.
func (a *asks) tolerates(taints []corev1.Taint) *corev1.Taint {
	for i := range taints {
		if a.preferred && taints[i].Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !capacity.Tolerates(a.tolerations, &taints[i]) {
			return &taints[i]
		}
	}
	return nil
}

// matches reports whether a node with these labels satisfies one of the terms.
func (a *asks) matches(label func(key string) (string, bool)) bool {
	return capacity.MatchAny(a.terms, label)
}

// id is equal for equal asks.
func (a *asks) id() string {
	k := make(capacity.KeyBytes, 0, 256)
	k.Count(len(a.terms))
	for _, t := range a.terms {
		k.Requirements(t)
	}
	for i := range a.tolerations {
		t := &a.tolerations[i]
		k.Text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	k.Text(strconv.FormatBool(a.preferred), a.scheduler)
	return string(k)
}

// matching returns the candidates that satisfy a. The set is shared and must not be changed.
func (c *catalog) matching(a *asks) packing.Bits {
	id := a.id()
	out, known := c.matched[id]
	if !known {
		out = c.match(a)
		c.matched[id] = out
	}
	return out
}

func (c *catalog) match(a *asks) packing.Bits {
	out := packing.NewBits(len(c.candidates))
	for _, p := range c.pools {
		if !p.Serves(a.scheduler) || a.tolerates(p.Taints) != nil {
			continue
		}
		terms := a.terms
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
func (p *poolOffers) match(c *catalog, term capacity.Requirements, out packing.Bits) {
	var offerwise []capacity.Requirement
	typewise := make([]capacity.Requirement, 0, len(term))
	for key, r := range term {
		if capacity.OfferLabel(key) {
			offerwise = append(offerwise, r)
		} else {
			typewise = append(typewise, r)
		}
	}
	ok := make([]bool, len(p.types))
next:
	for v := range p.labelChoices {
		for t := range ok {
			ok[t] = true
		}
		for _, r := range typewise {
			if value, has := p.labelChoices[v].labels[r.Key]; has {
				if !r.Has(value) {
					continue next
				}
				continue
			}
			p.matchColumn(r, ok)
		}
	candidates:
		for b := p.labelChoices[v].first; b < p.labelChoices[v].last; b++ {
			if !ok[c.candidates[b].typ] {
				continue
			}
			for _, r := range offerwise {
				if value, has := c.label(b, r.Key); has && !r.Has(value) || !has && !r.AllowsAbsent() {
					continue candidates
				}
			}
			out.Set(b)
		}
	}
}

// matchColumn clears ok for the types whose label does not satisfy r.
func (p *poolOffers) matchColumn(r capacity.Requirement, ok []bool) {
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
