package karpenter

import (
	"fmt"
	"slices"
	"strings"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// unhonored is a field of NodePool that has no effect yet.
type unhonored struct {
	field string
	// instead is what happens in its place, as a user would be told.
	instead string
	// used says that the user of the pool would have more of it elsewhere: the object asks for something else than what happens anyway.
	used func(*karpv1.NodePool) bool
}

// unhonoredFields is the one list of what is read and not acted upon. Whoever gives a field its effect deletes its row.
var unhonoredFields = []unhonored{
	{"spec.disruption.consolidationPolicy", "only empty nodes are removed", func(np *karpv1.NodePool) bool {
		return np.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationPolicyWhenEmpty && np.Spec.Disruption.ConsolidateAfter.Duration != nil &&
			np.Spec.Replicas == nil && !forbids(np, karpv1.DisruptionReasonUnderutilized)
	}},
	{"spec.template.spec.expireAfter", "no time at all would end nodes as soon as they are there: they do not expire", func(np *karpv1.NodePool) bool {
		d := np.Spec.Template.Spec.ExpireAfter.Duration
		return d != nil && *d == 0
	}},
}

// forbids says whether a budget of the pool never allows any node to be ended for the reason.
func forbids(np *karpv1.NodePool, reason karpv1.DisruptionReason) bool {
	return slices.ContainsFunc(np.Spec.Disruption.Budgets, func(b karpv1.Budget) bool {
		return b.Schedule == nil && (b.Nodes == "0" || b.Nodes == "0%") && (len(b.Reasons) == 0 || slices.Contains(b.Reasons, reason))
	})
}

// unhonoredBy says which fields of np have no effect: lost are those whose user loses something, each with what happens instead;
// idle those by which nothing is lost, each with the reason. Empty: there are none.
func unhonoredBy(np *karpv1.NodePool) (lost, idle string) {
	var out, more []string
	for _, f := range unhonoredFields {
		if f.used(np) {
			out = append(out, f.field+" ("+f.instead+")")
		}
	}
	if derived(np.Name) {
		if setting := np.Annotations[objects.AnnotationUnhonored]; setting != "" {
			more = append(more, setting)
		}
	} else {
		more = idleBudgets(np)
	}
	if len(out) > 0 {
		lost = "no effect yet: " + strings.Join(out, ", ")
	}
	if len(more) > 0 {
		idle = "without effect, and nothing is lost: " + strings.Join(more, ", ")
	}
	return lost, idle
}

// idleBudgets are the budgets that limit nothing: no node is ended for any of their reasons.
func idleBudgets(np *karpv1.NodePool) []string {
	var out []string
	for i, b := range np.Spec.Disruption.Budgets {
		if len(b.Reasons) == 0 || slices.Contains(b.Reasons, karpv1.DisruptionReasonEmpty) {
			continue
		}
		var reasons []string
		for _, r := range b.Reasons {
			reasons = append(reasons, string(r))
		}
		out = append(out, fmt.Sprintf("spec.disruption.budgets[%d] (no node is ended for the reason %s)", i, strings.Join(reasons, " or ")))
	}
	return out
}
