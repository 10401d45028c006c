package launch

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
)

// mayLaunch returns why pods of the namespace may not cause launches, or nil. Pods of other namespaces are scheduled as usual: they use
// existing capacity, but none is bought or reserved for them. mayLaunch answers from memory.
func (m *Launcher) mayLaunch(namespace string) error {
	if m.cfg.NamespaceSelector == nil {
		return nil
	}
	ns, err := m.pending.classes.ns.Get(namespace)
	if err != nil { // when its event arrives, the pod is planned for again
		return fmt.Errorf("no node may be launched for pods of namespace %q, of which nothing is known yet: namespaceSelector of ProvisionArgs is %s",
			namespace, m.cfg.NamespaceSelector)
	}
	if !m.cfg.NamespaceSelector.Matches(labels.Set(ns.Labels)) {
		return fmt.Errorf("no node may be launched for pods of namespace %q: namespaceSelector of ProvisionArgs (%s) doesn't select it",
			namespace, m.cfg.NamespaceSelector)
	}
	return nil
}

// withoutOthers refuses the waiting pods that may not cause launches and leaves them out. It must run before groups are collected: a member
// makes its whole group demand, and a group is all in one namespace.
func (m *Launcher) withoutOthers(ctx context.Context, waiting []ledger.Waiting) []ledger.Waiting {
	if m.cfg.NamespaceSelector == nil {
		return waiting
	}
	changes := m.changes.Load()
	problem := map[string]error{}
	refused := map[string][]types.UID{}
	waiting = slices.DeleteFunc(waiting, func(w ledger.Waiting) bool {
		ns := w.Ref.Namespace
		if _, asked := problem[ns]; !asked {
			problem[ns] = m.mayLaunch(ns)
		}
		if problem[ns] != nil {
			refused[ns] = append(refused[ns], w.Ref.UID)
		}
		return problem[ns] != nil
	})
	for _, ns := range slices.Sorted(maps.Keys(refused)) {
		m.refuse(ctx, refused[ns], problem[ns].Error(), false)
	}
	if m.changes.Load() != changes {
		m.reopen() // a namespace may have been selected before its pods were refused
	}
	return waiting
}

// Namespaces returns the handler for the scheduler's Namespace informer: pods are planned for once their namespace is selected.
func (m *Launcher) Namespaces() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { m.namespaceChanged(nil, o.(*corev1.Namespace)) },
		UpdateFunc: func(old, o any) { m.namespaceChanged(old.(*corev1.Namespace), o.(*corev1.Namespace)) },
	}
}

func (m *Launcher) namespaceChanged(before, now *corev1.Namespace) {
	s := m.cfg.NamespaceSelector
	if s != nil && s.Matches(labels.Set(now.Labels)) && (before == nil || !s.Matches(labels.Set(before.Labels))) {
		m.Changed()
	}
}
