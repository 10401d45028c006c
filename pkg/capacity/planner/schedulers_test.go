package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func of(scheduler string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulerName = scheduler }
}

// Profiles of one binary get nodes from their own pools, in one plan.
func TestPoolsOfSchedulers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pools map[string][]string // the schedulers that each pool serves
		want  string
	}{
		{"pools that say nothing serve everybody, together", map[string][]string{"x": nil}, "x on-demand c.4 : map[a:2 b:2]\n"},
		{"each has its own", map[string][]string{"x": {"a"}, "y": {"b"}}, "x on-demand c.2 : map[a:2]\ny on-demand c.2 : map[b:2]\n"},
		{"one is shared, the other is not", map[string][]string{"x": {"b"}, "y": {"a", "b"}}, "y on-demand c.4 : map[a:2 b:2]\n"},
		{"nothing is for one of them", map[string][]string{"x": {"a"}}, "x on-demand c.2 : map[a:2]\nrefused 2 b: none of 1 node pools is for pods of scheduler b\n"},
		{"what stands in the way elsewhere is none of its business", map[string][]string{"x": {"a"}, "broken": {"b"}},
			"x on-demand c.2 : map[a:2]\nrefused 2 b: broken: it is broken\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			view := &capacity.View{Demand: []capacity.Demand{demandOf(t, 2, asking("a", "cpu=800m", of("a"))), demandOf(t, 2, asking("b", "cpu=800m", of("b")))}}
			for _, name := range []string{"x", "y", "broken"} {
				if schedulers, ok := tc.pools[name]; ok {
					p := testPool(name)
					p.Schedulers = schedulers
					if name == "broken" {
						p.Unready = "it is broken"
					}
					view.Pools = append(view.Pools, p)
				}
			}
			planner := New()
			for range 2 { // the second time with the cached catalog
				if diff := cmp.Diff(tc.want, summary(planner.Plan(view, capacity.Options{}))); diff != "" {
					t.Errorf("plan (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A planner with a cached catalog notices when a pool serves other schedulers than before.
func TestPoolsChangeHands(t *testing.T) {
	p := testPool("x")
	p.Schedulers = []string{"a"}
	view := &capacity.View{Pools: []*capacity.Pool{p}, Demand: []capacity.Demand{demandOf(t, 1, asking("a", "cpu=1", of("a")))}}
	planner := New()
	if got := planner.Plan(view, capacity.Options{}); len(got.Nodes) != 1 {
		t.Fatalf("plan: %s", summary(got))
	}
	other := *p
	other.Schedulers = []string{"b"}
	view.Pools = []*capacity.Pool{&other}
	if got := planner.Plan(view, capacity.Options{}); len(got.Nodes) != 0 || len(got.Refused) != 1 || got.Refused[0].Retryable {
		t.Errorf("plan: %s", summary(got))
	}
}
