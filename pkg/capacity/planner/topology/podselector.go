package topology

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// podSelector is a pod term without its topology key.
type podSelector struct {
	selector   labels.Selector
	namespaces []string
	nsSelector labels.Selector
	// firstKey and firstValue are the first label and value that the selector requires, to exclude other pods quickly; empty key: it requires no
	// single value. onlyFirst: the selector requires nothing else.
	firstKey, firstValue string
	onlyFirst            bool
}

func newPodSelector(t *capacity.PodTerm) podSelector {
	s := podSelector{selector: t.Selector, namespaces: t.Namespaces, nsSelector: t.NamespaceSelector}
	if t.Selector == nil {
		s.selector = labels.Nothing()
	}
	requirements, _ := s.selector.Requirements()
	for i := range requirements {
		if v, ok := requirements[i].Values(), requirements[i].Operator() == "=" || requirements[i].Operator() == "in" || requirements[i].Operator() == "=="; ok && len(v) == 1 {
			s.firstKey = requirements[i].Key()
			s.firstValue = v.UnsortedList()[0]
			s.onlyFirst = len(requirements) == 1
			break
		}
	}
	return s
}

func (s *podSelector) matches(namespace string, podLabels map[string]string, names capacity.NamespaceLabels) bool {
	if s.firstKey != "" {
		if v, ok := podLabels[s.firstKey]; !ok || v != s.firstValue {
			return false
		}
	}
	if !slices.Contains(s.namespaces, namespace) {
		if s.nsSelector == nil {
			return false
		}
		var nsLabels labels.Set
		if names != nil {
			nsLabels = names(namespace)
		}
		if !s.nsSelector.Matches(nsLabels) {
			return false
		}
	}
	return s.onlyFirst || s.selector.Matches(labels.Set(podLabels))
}

// termID identifies a pod term by the pods it selects and its topology key.
func termID(t *capacity.PodTerm) string { return t.TopologyKey + selectorID(t) }

// selectorID identifies a pod term by the pods it selects.
func selectorID(t *capacity.PodTerm) string {
	var b strings.Builder
	writeSelector(&b, t.Selector)
	b.WriteString(strings.Join(slices.Sorted(slices.Values(t.Namespaces)), ","))
	writeSelector(&b, t.NamespaceSelector)
	return b.String()
}

// writeSelector distinguishes no selector, one that matches nothing and one that matches everything; all three print as "".
func writeSelector(b *strings.Builder, s labels.Selector) {
	switch {
	case s == nil:
		b.WriteString("|none|")
	case s.Empty():
		b.WriteString("|every|")
	default:
		b.WriteString("|" + s.String() + "|")
	}
}
