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
	// instead describes, for users, what happens instead.
	instead string
	// used reports whether the pool asks for something else than what happens anyway, so that its user loses something.
	used func(*karpv1.NodePool) bool
}

// unhonoredFields lists all fields that are read but have no effect. When a field gets its effect, delete its row.
var unhonoredFields = []unhonored{
	{"spec.disruption.consolidationPolicy", "only empty nodes are removed", func(np *karpv1.NodePool) bool {
		return np.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationPolicyWhenEmpty && np.Spec.Disruption.ConsolidateAfter.Duration != nil &&
			np.Spec.Replicas == nil && !forbids(np, karpv1.DisruptionReasonUnderutilized)
	}},
	{"spec.template.spec.expireAfter", "zero would terminate nodes as soon as they exist: they do not expire", func(np *karpv1.NodePool) bool {
		d := np.Spec.Template.Spec.ExpireAfter.Duration
		return d != nil && *d == 0
	}},
}

// forbids reports whether a budget of the pool forbids every disruption for the reason.
func forbids(np *karpv1.NodePool, reason karpv1.DisruptionReason) bool {
	return slices.ContainsFunc(np.Spec.Disruption.Budgets, func(b karpv1.Budget) bool {
		return b.Schedule == nil && (b.Nodes == "0" || b.Nodes == "0%") && (len(b.Reasons) == 0 || slices.Contains(b.Reasons, reason))
	})
}

// UnhonoredBy returns which fields of np have no effect: lost are fields whose user loses something, each with what happens instead;
// idle are fields whose missing effect does no harm, each with the reason. Both are empty if there are none.
func UnhonoredBy(np *karpv1.NodePool) (lost, idle string) {
	var out, more []string
	for _, f := range unhonoredFields {
		if f.used(np) {
			out = append(out, f.field+" ("+f.instead+")")
		}
	}
	if Derived(np.Name) {
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
		idle = "without effect, which is harmless: " + strings.Join(more, ", ")
	}
	return lost, idle
}

// idleBudgets returns the budgets that limit nothing, because no node is disrupted for any of their reasons.
func idleBudgets(np *karpv1.NodePool) []string {
	var out []string
	for i, b := range np.Spec.Disruption.Budgets {
		if len(b.Reasons) == 0 || slices.Contains(b.Reasons, karpv1.DisruptionReasonEmpty) || slices.Contains(b.Reasons, karpv1.DisruptionReasonDrifted) {
			continue
		}
		var reasons []string
		for _, r := range b.Reasons {
			reasons = append(reasons, string(r))
		}
		out = append(out, fmt.Sprintf("spec.disruption.budgets[%d] (no node is terminated for the reason %s)", i, strings.Join(reasons, " or ")))
	}
	return out
}
