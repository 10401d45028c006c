package planner

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

type planCase struct {
	name string
	view func(t *testing.T) *capacity.View
	opts capacity.Options
	want string
}

func runPlans(t *testing.T, cases []planCase) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			v := tc.view(t)
			for i := range tc.opts.Forbidden {
				tc.opts.Forbidden[i].Class = v.Demand[0].Class.Key
			}
			p := Decide(v, tc.opts)
			if err := check(v, p, tc.opts); err != nil {
				t.Error(err)
			}
			want := strings.ReplaceAll(strings.TrimLeft(tc.want, "\n"), "\t", "")
			if diff := cmp.Diff(want, summary(p)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// viewOf returns a view with the default pool and demand for n pods like pod.
func viewOf(t *testing.T, n int, pod *corev1.Pod, nodes ...*capacity.Node) *capacity.View {
	return &capacity.View{Pools: []*capacity.Pool{testPool("default")}, Nodes: nodes, Demand: []capacity.Demand{demandOf(t, n, pod)}}
}

func TestPlanOfPlainPods(t *testing.T) {
	runPlans(t, []planCase{
		{name: "the cheapest machine for one pod", view: func(t *testing.T) *capacity.View { return viewOf(t, 1, asking("web", "cpu=1 memory=2Gi")) }, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "free room first, in flight or not", view: func(t *testing.T) *capacity.View {
			n := testNode("n1", "a", 2, 8)
			n.InFlight = true
			return viewOf(t, 3, asking("web", "cpu=1"), n)
		}, want: `
			n1: map[web:2]
			default on-demand c.2 : map[web:1]
			`},
		{name: "memory decides the family", view: func(t *testing.T) *capacity.View { return viewOf(t, 1, asking("db", "cpu=1 memory=14Gi")) }, want: `
			default on-demand r.2 : map[db:1]
			`},
		{name: "nothing is large enough", view: func(t *testing.T) *capacity.View { return viewOf(t, 2, asking("web", "cpu=64")) }, want: `
			refused 2 web: default: none of 12 instance types has capacity for it: cpu 64 requested, 15.9 at most
			`},
		{name: "unschedulable nodes get nothing", view: func(t *testing.T) *capacity.View {
			n := testNode("n1", "a", 2, 8)
			n.Unschedulable = true
			return viewOf(t, 1, asking("web", "cpu=1"), n)
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "what the filters have refused is not proposed again", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"), testNode("n1", "a", 2, 8))
			v.Pools = append(v.Pools, testPool("other"))
			return v
		}, opts: capacity.Options{Forbidden: []capacity.Forbidden{{Node: "n1"}, {Pool: "default"}, {Pool: "other", Zone: "a"}}}, want: `
			other on-demand c.2 : map[web:1]
			`},
	})
}

// Anticipated pods of two owners are of one class. Each is placed as one of its own owner's.
func TestAnticipatedPodsKeepTheirOwnersExample(t *testing.T) {
	d := demandOf(t, 1, asking("job", "cpu=1 memory=1Gi"))
	demand := []capacity.Demand{d}
	for _, owner := range []types.UID{"x", "y"} {
		own := *d.Class
		own.Pod = d.Class.Pod.DeepCopy()
		own.Pod.Name = string(owner)
		demand = append(demand, capacity.Demand{Class: &own, Owner: owner, Ahead: 3})
	}
	plan := Decide(&capacity.View{Pools: []*capacity.Pool{testPool("default")}, Demand: demand}, capacity.Options{})
	if len(plan.Placements) != 7 {
		t.Fatalf("%d pods are placed, want 7", len(plan.Placements))
	}
	for _, pl := range plan.Placements {
		if pl.Owner != "" && pl.Class.Pod.Name != string(pl.Owner) || pl.Owner == "" && pl.Class != d.Class {
			t.Errorf("a pod of %q is placed as %s", pl.Owner, pl.Class.Pod.Name)
		}
	}
}
