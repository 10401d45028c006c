package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/annotations"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/pdb"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/podrules"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

// evictions answers with the rules of the disruption controllers which PodDisruptionBudgets of a set forbid an eviction.
type evictions struct{ rules *podrules.Rules }

func newEvictions(set *manifest.Set) (evictions, error) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, b := range manifest.All[*policyv1.PodDisruptionBudget](set) {
		if err := indexer.Add(b); err != nil {
			return evictions{}, err
		}
	}
	// A FakeRecorder without a channel records nothing: what annotations say wrongly is not this tool's to report.
	rules := podrules.New(podrules.Config{Budgets: pdb.New(policylisters.NewPodDisruptionBudgetLister(indexer)), Settings: annotations.NewReader(&events.FakeRecorder{})})
	return evictions{rules}, rules.Begin()
}

// Blocked implements explain.Evictions.
func (e evictions) Blocked(pod *corev1.Pod, now time.Time) *consolidation.Kept {
	return e.rules.Unevictable(e.rules.Look([]*corev1.Pod{pod}), now)
}
