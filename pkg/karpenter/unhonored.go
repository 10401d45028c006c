package karpenter

import (
	"strings"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// unhonored is a field of NodePool that has no effect yet.
type unhonored struct {
	field string
	// instead is what happens in its place, as a user would be told.
	instead string
	// used says that the object asks for something else than what happens anyway.
	used func(*karpv1.NodePool) bool
}

// unhonoredFields is the one list of what is read and not acted upon. Whoever gives a field its effect deletes its row.
var unhonoredFields = []unhonored{
	{"spec.disruption.consolidationPolicy", "only empty nodes are removed", func(np *karpv1.NodePool) bool {
		return np.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationPolicyWhenEmpty && np.Spec.Disruption.ConsolidateAfter.Duration != nil
	}},
	{"spec.template.spec.expireAfter", "no time at all would end nodes as soon as they are there: they do not expire", func(np *karpv1.NodePool) bool {
		d := np.Spec.Template.Spec.ExpireAfter.Duration
		return d != nil && *d == 0
	}},
}

// unhonoredBy lists the fields of np that have no effect, each with what happens instead; empty when all have.
func unhonoredBy(np *karpv1.NodePool) string {
	var out []string
	for _, f := range unhonoredFields {
		if f.used(np) {
			out = append(out, f.field+" ("+f.instead+")")
		}
	}
	if more := np.Annotations[unhonoredAnnotation]; derived(np.Name) && more != "" {
		out = append(out, more)
	}
	if len(out) == 0 {
		return ""
	}
	return "no effect yet: " + strings.Join(out, ", ")
}
