// Package pdb answers what PodDisruptionBudgets allow, from an informer's cache. It knows neither nodes nor what its answers are for.
package pdb

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	policylisters "k8s.io/client-go/listers/policy/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Budgets knows what PodDisruptionBudgets allow, as the Eviction API decides it. It is as of the last call of Read.
type Budgets struct {
	lister      policylisters.PodDisruptionBudgetLister
	byNamespace map[string]*namespaceBudgets
	version     int
}

// New returns the budgets that a lister knows. Read them before anything else.
func New(lister policylisters.PodDisruptionBudgetLister) *Budgets { return &Budgets{lister: lister} }

// namespaceBudgets are the PodDisruptionBudgets of a namespace, by name. version changes when a budget is added or removed, or its spec changes.
type namespaceBudgets struct {
	all     []*budget
	version int
}

type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

// Read takes over what the informer knows now.
func (b *Budgets) Read() error {
	list, err := b.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	slices.SortFunc(list, func(x, y *policyv1.PodDisruptionBudget) int { return strings.Compare(x.Name, y.Name) })
	next := map[string]*namespaceBudgets{}
	for _, pdb := range list {
		in := next[pdb.Namespace]
		if in == nil {
			in = &namespaceBudgets{}
			next[pdb.Namespace] = in
		}
		in.all = append(in.all, &budget{PodDisruptionBudget: pdb})
	}
	for name, in := range next {
		old := b.byNamespace[name]
		if old != nil && slices.EqualFunc(old.all, in.all, func(x, y *budget) bool { return x.UID == y.UID && x.Generation == y.Generation }) {
			in.version = old.version
			for i := range in.all {
				in.all[i].selector = old.all[i].selector
			}
			continue
		}
		b.version++
		in.version = b.version
		for _, x := range in.all {
			if x.selector, err = metav1.LabelSelectorAsSelector(x.Spec.Selector); err != nil {
				x.selector = labels.Everything() // Kubernetes' controller can't read it either; it may be intended for any pod
			}
		}
	}
	b.byNamespace = next
	return nil
}

// Covering returns the positions of the budgets that select a pod among those of its namespace, with the version that this holds for.
func (b *Budgets) Covering(p *corev1.Pod) (at []int32, version int) {
	in := b.byNamespace[p.Namespace]
	if in == nil {
		return nil, 0
	}
	set := labels.Set(p.Labels)
	for i, x := range in.all {
		if x.selector.Matches(set) {
			at = append(at, int32(i))
		}
	}
	return at, in.version
}

// VersionOf returns the present version of a namespace's budgets.
func (b *Budgets) VersionOf(namespace string) int {
	if in := b.byNamespace[namespace]; in != nil {
		return in.version
	}
	return 0
}

// Blocking returns the name of a budget that allows no eviction of the pod now; empty: none. at is what Covering has returned.
func (b *Budgets) Blocking(p *corev1.Pod, at []int32) string {
	if len(at) == 0 || p.Status.Phase == corev1.PodPending || objects.Ended(p) || pods.Terminating(p) {
		return ""
	}
	all := b.byNamespace[p.Namespace].all
	x := all[at[0]]
	if len(at) > 1 {
		return x.Name + " (and " + all[at[1]].Name + ", but only one may cover a pod)"
	}
	if !podReady(p) {
		always := x.Spec.UnhealthyPodEvictionPolicy != nil && *x.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
		if always || x.Status.DesiredHealthy > 0 && x.Status.CurrentHealthy >= x.Status.DesiredHealthy {
			return ""
		}
	}
	if x.Status.ObservedGeneration < x.Generation || x.Status.DisruptionsAllowed <= 0 {
		return x.Name
	}
	return ""
}

// Allowance returns how many pods the first of the budgets lets go at the same time, with its name; without budgets: no name.
func (b *Budgets) Allowance(p *corev1.Pod, at []int32) (name string, n int) {
	if len(at) == 0 {
		return "", 0
	}
	x := b.byNamespace[p.Namespace].all[at[0]]
	return x.Namespace + "/" + x.Name, int(max(1, x.Status.DisruptionsAllowed))
}

func podReady(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodReady {
			return p.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
