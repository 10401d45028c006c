package capacity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Repels reports whether required anti-affinity of the class's pods keeps other pods off their node.
func (c *Class) Repels() bool {
	return slices.ContainsFunc(c.AntiAffinity, func(t PodTerm) bool { return t.TopologyKey == LabelHostname })
}

// Apart reports whether required anti-affinity of one class or the other keeps their pods off the same node. Terms that need the labels
// of namespaces are left to the scheduler's own filters.
func Apart(a, b *Class) bool { return a.repels(b) || b.repels(a) }

func (c *Class) repels(other *Class) bool {
	return slices.ContainsFunc(c.AntiAffinity, func(t PodTerm) bool { return t.TopologyKey == LabelHostname && t.Selects(other) })
}

// Selects reports whether the term selects pods of the class. Terms that need the labels of namespaces select none.
func (t *PodTerm) Selects(c *Class) bool {
	if t.Selector == nil {
		return false
	}
	everywhere := t.NamespaceSelector != nil && t.NamespaceSelector.Empty()
	return (everywhere || slices.Contains(t.Namespaces, c.Namespace)) && t.Selector.Matches(labels.Set(c.Labels))
}

// DependsOnOthers reports whether the class has required constraints by which other pods decide where its pods may be.
func (c *Class) DependsOnOthers() bool {
	if c.Pod == nil {
		return false
	}
	if a := c.Pod.Spec.Affinity; a != nil && (a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0) {
		return true
	}
	return slices.ContainsFunc(c.Pod.Spec.TopologySpreadConstraints, func(t corev1.TopologySpreadConstraint) bool {
		return t.WhenUnsatisfiable == corev1.DoNotSchedule
	})
}
