package catalog

import (
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// maxVariants limits the combinations of values of a pool's open labels.
const maxVariants = 64

// openLabels returns the label sets that nodes of a pool may get: the pool's labels and, for each custom key that its requirements leave
// open, the values that demand names, or one value if demand names none.
func (p *PoolOffers) openLabels(mentioned Mentions) []labelChoice {
	out := []labelChoice{{Labels: p.Labels}}
	for _, r := range p.Requirements.Sorted() {
		if _, own := p.Labels[r.Key]; own || p.TypeLabel(r.Key) || capacity.OfferLabel(r.Key) || r.Key == capacity.LabelHostname || r.AllowsAbsent() {
			continue
		}
		values := openValues(r, mentioned[r.Key])
		if len(values)*len(out) > maxVariants {
			values = values[:max(1, maxVariants/len(out))]
		}
		var next []labelChoice
		for _, v := range out {
			for _, value := range values {
				labels := maps.Clone(v.Labels)
				if labels == nil {
					labels = map[string]string{}
				}
				labels[r.Key] = value
				next = append(next, labelChoice{Labels: labels})
			}
		}
		out = next
	}
	return out
}

// openValues returns the values to consider for a key; named is nil if demand does not ask for the key.
func openValues(r capacity.Requirement, named map[string]bool) []string {
	listed, excluded := r.Values()
	if !excluded {
		if named == nil && len(listed) > 1 {
			return listed[:1]
		}
		return listed
	}
	var out []string
	for _, v := range slices.Sorted(maps.Keys(named)) {
		if r.Has(v) {
			out = append(out, v)
		}
	}
	// One more value, for pods that don't ask for one: without any, the node would not satisfy its pool.
	if v, ok := r.Least(); ok && !named[v] {
		out = append(out, v)
	}
	return out
}
