package provisioning

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
)

// Namespaces knows in which namespaces pods may cause launches. Safe for concurrent use.
type Namespaces struct {
	pending  *pending.Pods
	refusals *Refusals
	triggers *Triggers
	selector labels.Selector // nil: all
}

// MayLaunch returns why pods of the namespace may not cause launches, or nil. Pods of other namespaces are scheduled as usual: they use
// existing capacity, but none is bought or reserved for them. MayLaunch answers from memory.
func (n *Namespaces) MayLaunch(namespace string) error {
	if n.selector == nil {
		return nil
	}
	set, known := n.pending.Classes.Namespace(namespace)
	if !known { // when its event arrives, the pod is planned for again
		return fmt.Errorf("no node may be launched for pods of namespace %q, of which nothing is known yet: namespaceSelector of ProvisionArgs is %s",
			namespace, n.selector)
	}
	if !n.selector.Matches(set) {
		return fmt.Errorf("no node may be launched for pods of namespace %q: namespaceSelector of ProvisionArgs (%s) doesn't select it",
			namespace, n.selector)
	}
	return nil
}

// withoutOthers refuses the waiting pods that may not cause launches and leaves them out. It must run before groups are collected: a member
// makes its whole group demand, and a group is all in one namespace.
func (n *Namespaces) withoutOthers(ctx context.Context, waiting []ledger.Waiting) []ledger.Waiting {
	if n.selector == nil {
		return waiting
	}
	defer n.triggers.reopenIfChanged()() // a namespace may be selected before its pods are refused
	problem := map[string]error{}
	refused := map[string][]types.UID{}
	waiting = slices.DeleteFunc(waiting, func(w ledger.Waiting) bool {
		ns := w.Ref.Namespace
		if _, asked := problem[ns]; !asked {
			problem[ns] = n.MayLaunch(ns)
		}
		if problem[ns] != nil {
			refused[ns] = append(refused[ns], w.Ref.UID)
		}
		return problem[ns] != nil
	})
	for _, ns := range slices.Sorted(maps.Keys(refused)) {
		n.refusals.Refuse(ctx, refused[ns], problem[ns].Error(), false)
	}
	return waiting
}

// Namespaces returns the handler for the scheduler's Namespace informer: pods are planned for once their namespace is selected.
func (n *Namespaces) Namespaces() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { n.namespaceChanged(nil, o.(*corev1.Namespace)) },
		UpdateFunc: func(old, o any) { n.namespaceChanged(old.(*corev1.Namespace), o.(*corev1.Namespace)) },
	}
}

func (n *Namespaces) namespaceChanged(before, now *corev1.Namespace) {
	s := n.selector
	if s != nil && s.Matches(labels.Set(now.Labels)) && (before == nil || !s.Matches(labels.Set(before.Labels))) {
		n.triggers.Changed()
	}
}
