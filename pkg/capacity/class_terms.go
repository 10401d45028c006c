package capacity

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// maxTerms limits how many node terms a class has: each node affinity term is combined with each of its volumes' terms. Terms beyond it are
// ignored. Since terms are ORed, that can only make the plan refuse more pods.
const maxTerms = 256

// nodeTerms fills Terms and Preferred.
func (c *Class) nodeTerms(pod *corev1.Pod, topology [][]Requirements) error {
	base := make(Requirements, len(pod.Spec.NodeSelector))
	for key, value := range pod.Spec.NodeSelector {
		base = base.And(ValueIn(NormalLabel(key), value))
	}
	var affinity *corev1.NodeAffinity
	if pod.Spec.Affinity != nil {
		affinity = pod.Spec.Affinity.NodeAffinity
	}
	terms := []Requirements{base}
	if affinity != nil && affinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		var ored []Requirements
		for i, t := range affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			term, err := nodeTerm(&t)
			if err != nil {
				return fmt.Errorf("%w: required node affinity, term %d: %w", ErrNotPlannable, i, err)
			}
			if term != nil {
				ored = append(ored, term)
			}
		}
		terms = IntersectTerms(terms, ored)
		if len(terms) == 0 {
			return fmt.Errorf("%w: node selector and required node affinity contradict each other", ErrNotPlannable)
		}
	} else if r, ok := base.Impossible(); ok {
		return fmt.Errorf("%w: node selector: %s", ErrNotPlannable, r)
	}
	if own := slices.Clone(terms); len(topology) > 0 {
		if len(own) == 1 && len(own[0]) == 0 {
			own = nil
		}
		c.withoutVolumes = &own
	}
	for _, alternatives := range topology {
		if terms = IntersectTerms(terms, normalTerms(alternatives)); len(terms) == 0 {
			return fmt.Errorf("%w: its volumes can't be reached from the nodes it asks for", ErrNotPlannable)
		}
	}
	if len(terms) > 1 || len(terms[0]) > 0 {
		c.Terms = terms
	}
	if affinity == nil {
		return nil
	}
	for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		p := &affinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
		term, err := nodeTerm(&p.Preference)
		if err != nil {
			return fmt.Errorf("%w: preferred node affinity, term %d: %w", ErrNotPlannable, i, err)
		}
		if len(term) > 0 {
			c.Preferred = append(c.Preferred, PreferredTerm{Weight: p.Weight, Term: term})
		}
	}
	slices.SortStableFunc(c.Preferred, func(a, b PreferredTerm) int { return int(b.Weight) - int(a.Weight) })
	return nil
}

// nodeTerm converts a NodeSelectorTerm. It returns nil for an empty term, which matches no node.
func nodeTerm(t *corev1.NodeSelectorTerm) (Requirements, error) {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return nil, nil
	}
	out := Requirements{}
	for _, e := range t.MatchExpressions {
		r, err := NewRequirement(NormalLabel(e.Key), Operator(e.Operator), e.Values...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
		out = out.And(r)
	}
	for _, e := range t.MatchFields {
		if e.Key != FieldNodeName {
			return nil, fmt.Errorf("field %s is not one that nodes can be selected by", e.Key)
		}
		r, err := NewRequirement(FieldNodeName, Operator(e.Operator), e.Values...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
		out = out.And(r)
	}
	return out, nil
}

// IntersectTerms intersects each term of a with each term of b and leaves out the results that no node can satisfy.
func IntersectTerms(a, b []Requirements) []Requirements {
	var out []Requirements
	for _, x := range a {
		for _, y := range b {
			both := x.Intersect(y)
			if _, bad := both.Impossible(); !bad && len(out) < maxTerms {
				out = append(out, both)
			}
		}
	}
	return out
}

func normalTerms(terms []Requirements) []Requirements {
	out := make([]Requirements, len(terms))
	for i, t := range terms {
		out[i] = make(Requirements, len(t))
		for _, r := range t {
			r.Key = NormalLabel(r.Key)
			out[i] = out[i].And(r)
		}
	}
	return out
}

// podTerms fills Spread and the pod affinity terms.
func (c *Class) podTerms(pod *corev1.Pod) error {
	for i := range pod.Spec.TopologySpreadConstraints {
		s, err := spreadConstraint(&pod.Spec.TopologySpreadConstraints[i], pod.Labels)
		if err != nil {
			return fmt.Errorf("%w: topologySpreadConstraints[%d]: %w", ErrNotPlannable, i, err)
		}
		c.Spread = append(c.Spread, s)
	}
	if pod.Spec.Affinity == nil {
		return nil
	}
	var err error
	if a := pod.Spec.Affinity.PodAffinity; a != nil {
		if c.Affinity, err = requiredTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, pod.Namespace); err != nil {
			return fmt.Errorf("%w: required pod affinity, %w", ErrNotPlannable, err)
		}
		if c.PreferredAffinity, err = preferredTerms(a.PreferredDuringSchedulingIgnoredDuringExecution, pod.Namespace); err != nil {
			return fmt.Errorf("%w: preferred pod affinity, %w", ErrNotPlannable, err)
		}
	}
	if a := pod.Spec.Affinity.PodAntiAffinity; a != nil {
		if c.AntiAffinity, err = requiredTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, pod.Namespace); err != nil {
			return fmt.Errorf("%w: required pod anti-affinity, %w", ErrNotPlannable, err)
		}
		if c.PreferredAntiAffinity, err = preferredTerms(a.PreferredDuringSchedulingIgnoredDuringExecution, pod.Namespace); err != nil {
			return fmt.Errorf("%w: preferred pod anti-affinity, %w", ErrNotPlannable, err)
		}
	}
	return nil
}

func requiredTerms(terms []corev1.PodAffinityTerm, namespace string) ([]PodTerm, error) {
	var out []PodTerm
	for i := range terms {
		t, err := NewPodTerm(&terms[i], namespace, 0)
		if err != nil {
			return nil, fmt.Errorf("term %d: %w", i, err)
		}
		out = append(out, t)
	}
	return out, nil
}

func preferredTerms(terms []corev1.WeightedPodAffinityTerm, namespace string) ([]PodTerm, error) {
	var out []PodTerm
	for i := range terms {
		t, err := NewPodTerm(&terms[i].PodAffinityTerm, namespace, terms[i].Weight)
		if err != nil {
			return nil, fmt.Errorf("term %d: %w", i, err)
		}
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b PodTerm) int { return int(b.Weight) - int(a.Weight) })
	return out, nil
}

func spreadConstraint(t *corev1.TopologySpreadConstraint, podLabels map[string]string) (SpreadConstraint, error) {
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return SpreadConstraint{}, fmt.Errorf("labelSelector: %w", err)
	}
	for _, key := range t.MatchLabelKeys {
		value, ok := podLabels[key]
		if !ok {
			continue
		}
		r, err := labels.NewRequirement(key, selection.In, []string{value})
		if err != nil {
			return SpreadConstraint{}, fmt.Errorf("matchLabelKeys: %w", err)
		}
		selector = selector.Add(*r)
	}
	s := SpreadConstraint{
		TopologyKey: NormalLabel(t.TopologyKey), MaxSkew: t.MaxSkew, Selector: selector,
		Hard:              t.WhenUnsatisfiable != corev1.ScheduleAnyway,
		NodeAffinityHonor: t.NodeAffinityPolicy == nil || *t.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor,
		NodeTaintsHonor:   t.NodeTaintsPolicy != nil && *t.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
	}
	if t.MinDomains != nil {
		s.MinDomains = *t.MinDomains
	}
	return s, nil
}

// NewPodTerm converts a PodAffinityTerm of a pod in namespace.
func NewPodTerm(t *corev1.PodAffinityTerm, namespace string, weight int32) (PodTerm, error) {
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return PodTerm{}, fmt.Errorf("labelSelector: %w", err)
	}
	out := PodTerm{TopologyKey: NormalLabel(t.TopologyKey), Namespaces: t.Namespaces, Selector: selector, Weight: weight}
	if t.NamespaceSelector != nil {
		if out.NamespaceSelector, err = metav1.LabelSelectorAsSelector(t.NamespaceSelector); err != nil {
			return PodTerm{}, fmt.Errorf("namespaceSelector: %w", err)
		}
	} else if len(t.Namespaces) == 0 {
		out.Namespaces = []string{namespace}
	}
	return out, nil
}
