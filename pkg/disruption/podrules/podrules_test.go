package podrules

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/annotations"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/pdb"
)

// What is known of a pod lasts from round to round, and is forgotten when a round ends in which nobody asked for the pod.
func TestPodsAreForgotten(t *testing.T) {
	asked := map[string]int{}
	r := New(Config{Settings: annotations.NewReader(events.NewFakeRecorder(10)),
		Budgets: pdb.New(policylisters.NewPodDisruptionBudgetLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))),
		Successor: func(p *corev1.Pod) (*capacity.Class, error) {
			asked[p.Name]++
			if p.Name == "bad" {
				return nil, errors.New("no volume")
			}
			return &capacity.Class{}, nil
		}})
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name)}}
	}
	good, bad, now := pod("good"), pod("bad"), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	round := func(pods ...*corev1.Pod) {
		t.Helper()
		if err := r.Begin(); err != nil {
			t.Fatal(err)
		}
		for _, k := range r.Look(pods) {
			if class, err := r.Class(k, now); (class == nil) != (k.Pod == bad) || (err == nil) != (k.Pod == good) {
				t.Errorf("pod %s: %v, %v", k.Name, class, err)
			}
		}
		r.End()
	}
	round(good, bad)
	round(good, bad)
	if asked["good"] != 1 || asked["bad"] != 1 || len(r.known) != 2 {
		t.Errorf("asked for %v, %d are known", asked, len(r.known))
	}
	now = now.Add(retryClass)
	round(good, bad)
	if asked["good"] != 1 || asked["bad"] != 2 {
		t.Errorf("asked for %v after the time of an error", asked)
	}
	round(good)
	if len(r.known) != 1 {
		t.Errorf("%d are known", len(r.known))
	}
}
