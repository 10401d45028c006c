package capacity

import (
	"slices"

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
