package catalog

import (
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// The values that all demand asks for of a pool's open labels (openLabel) are combined, each with each, if that gives at most maxCombined label
	// choices. Otherwise they are combined for each nodeSelectorTerm of the demand by itself, to at most maxCombined choices for each term.
	maxCombined = 64
	// maxLabelChoices limits the label choices of a pool. maxListed limits choices times types, since each choice lists all types. Pods that ask for
	// values beyond these limits are planned later: a choice is listed only while pods ask for it, so there is space once the first pods have nodes.
	maxLabelChoices = 512
	maxListed       = 40_000
)

// openLabel is a custom label key that the requirements of a pool leave open, with the values that its nodes may get; the first is for
// demand that asks for none.
type openLabel struct {
	key    string
	values []labelValue
	// counted: pods are counted by the label's values.
	counted bool
}

// labelValue is a value, or the absence of a label.
type labelValue struct {
	value  string
	absent bool
}

// allows reports whether a node with this value satisfies the requirement.
func (v labelValue) allows(r capacity.Requirement) bool {
	return v.absent && r.AllowsAbsent() || !v.absent && r.Has(v.value)
}

// openKeys returns the custom label keys that the pool's requirements leave open, sorted.
func openKeys(p *capacity.Pool) (keys []string) {
	for _, r := range p.Requirements.Sorted() {
		if _, own := p.Labels[r.Key]; own || typeLabel(p, r.Key) || capacity.OfferLabel(r.Key) || r.Key == capacity.LabelHostname || r.AllowsAbsent() && r.Empty() {
			continue
		}
		keys = append(keys, r.Key)
	}
	return keys
}

// openLabels returns the label sets that nodes of a pool may get: the pool's labels and, for each custom key that its requirements leave
// open, a value that suits what the demand asks for, as Karpenter's Requirements.Compatible would find one.
func (p *PoolOffers) openLabels(mentioned *Mentions) []labelChoice {
	keys := openKeys(p.Pool)
	asked := mentioned.among(keys)
	open := make([]openLabel, 0, len(keys))
	combined := 1
	for _, key := range keys {
		l := openLabel{key: key, values: openValues(p.Requirements[key], asked, mentioned.counted[key]), counted: mentioned.counted[key]}
		if len(l.values) == 0 { // no node satisfies the pool
			return nil
		}
		open = append(open, l)
		combined = min(combined*len(l.values), maxCombined+1)
	}
	if combined <= maxCombined {
		return p.combine(open)
	}
	// Too many combinations: those of each term by itself.
	most := max(maxCombined, min(maxLabelChoices, maxListed/max(1, len(p.Allowed))))
	var out []labelChoice
	for _, term := range append([]capacity.Requirements{nil}, asked...) {
		values, ok := suiting(open, term)
		if !ok {
			continue
		}
		for _, choice := range p.combine(values) {
			if len(out) < most && !slices.ContainsFunc(out, func(o labelChoice) bool { return maps.Equal(o.Labels, choice.Labels) }) {
				out = append(out, choice)
			}
		}
	}
	return out
}

// suiting narrows the values to those that suit a term, and to at most maxCombined combinations. ok is false if the pool has no node for the term.
// If the term doesn't ask for a key, only the first value is kept, unless pods are counted by the key.
func suiting(open []openLabel, term capacity.Requirements) (out []openLabel, ok bool) {
	combined := 1
	for _, l := range open {
		r, asks := term[l.key]
		switch {
		case asks:
			l.values = slices.DeleteFunc(slices.Clone(l.values), func(v labelValue) bool { return !v.allows(r) })
			if len(l.values) == 0 {
				return nil, false
			}
		case !l.counted:
			l.values = l.values[:1]
		}
		l.values = l.values[:min(len(l.values), max(1, maxCombined/combined))]
		combined *= len(l.values)
		out = append(out, l)
	}
	return out, true
}

// combine returns the pool's labels with each combination of the values.
func (p *PoolOffers) combine(open []openLabel) []labelChoice {
	out := []labelChoice{{Labels: p.Labels}}
	for _, l := range open {
		next := make([]labelChoice, 0, len(out)*len(l.values))
		for _, c := range out {
			for _, v := range l.values {
				if v.absent {
					next = append(next, c)
					continue
				}
				labels := maps.Clone(c.Labels)
				if labels == nil {
					labels = map[string]string{}
				}
				labels[l.key] = v.value
				next = append(next, labelChoice{Labels: labels})
			}
		}
		out = next
	}
	return out
}

// openValues returns the values to consider for a key with the requirement r of its pool. The first is for demand that doesn't ask for the key: no
// label if the pool allows nodes without it, and otherwise a value that the pool allows, because its nodes must have one.
func openValues(r capacity.Requirement, asked []capacity.Requirements, counted bool) (out []labelValue) {
	add := func(v labelValue) {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	listed, excluded := r.Values()
	switch {
	case r.AllowsAbsent():
		add(labelValue{absent: true})
	case !excluded && len(listed) > 0:
		add(labelValue{value: listed[0]})
	case !excluded:
		return nil
	default:
		if v, ok := r.Least(); ok {
			add(labelValue{value: v})
		}
	}
	if counted && !excluded {
		for _, v := range listed {
			add(labelValue{value: v})
		}
	}
	for _, term := range asked {
		ask, asks := term[r.Key]
		if !asks {
			continue
		}
		both := r.Intersect(ask)
		values, complement := both.Values()
		if _, anyValue := ask.Values(); !complement && anyValue && len(values) > 0 {
			values = values[:1] // any of the pool's values will do
		}
		if !complement {
			for _, v := range values {
				add(labelValue{value: v})
			}
			continue
		}
		if slices.ContainsFunc(out, func(v labelValue) bool { return v.allows(ask) }) {
			continue
		}
		if v, ok := both.Least(); ok {
			add(labelValue{value: v})
		}
	}
	return out
}
