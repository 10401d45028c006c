package planner

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestCandidates(t *testing.T) {
	inZone := func(zone string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{capacity.LabelZone: zone} }
	}
	spot := testPool("spot")
	spot.Requirements = capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, "spot"), capacity.ValueIn(capacity.LabelZone, "a"))
	full := testPool("full")
	full.Limits = capacity.Resources{capacity.ResourceNodes: 0}
	tainted := testPool("tainted")
	tainted.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
	for _, tc := range []struct {
		name      string
		pod       *corev1.Pod
		pools     []*capacity.Pool
		forbidden []capacity.Forbidden
		want      []string
	}{
		{
			name: "one for each pool, zone and capacity type", pod: asking("web", "cpu=1"), pools: []*capacity.Pool{testPool("default"), spot},
			want: []string{"default a on-demand c.2", "default b on-demand c.2", "default c on-demand c.2", "spot a spot ca.2"},
		},
		{
			name: "what can't hold the pod or isn't for it is none", pod: asking("web", "cpu=1", inZone("b")), pools: []*capacity.Pool{testPool("default"), spot, tainted},
			want: []string{"default b on-demand c.2"},
		},
		{name: "nothing is large enough", pod: asking("web", "cpu=64"), pools: []*capacity.Pool{testPool("default")}},
		{
			name: "what is ruled out is none, what a limit stands in the way of is", pod: asking("web", "cpu=1"), pools: []*capacity.Pool{testPool("default"), full},
			forbidden: []capacity.Forbidden{{Pool: "default"}, {Pool: "full", Zone: "a"}, {Pool: "full", Zone: "b", CapacityType: "on-demand"}, {Pool: "full", Zone: "c", CapacityType: "spot"}},
			want:      []string{"full c on-demand c.2"},
		},
		{
			name: "rules among pods don't count", pod: asking("web", "cpu=1", withSpread(capacity.LabelZone), away("web", capacity.LabelZone)), pools: []*capacity.Pool{spot},
			want: []string{"spot a spot ca.2"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := &capacity.View{Pools: tc.pools, Demand: []capacity.Demand{demandOf(t, 1, tc.pod)}}
			class := v.Demand[0].Class
			for i := range tc.forbidden {
				tc.forbidden[i].Class = class.Key
			}
			var got []string
			ids := map[string]bool{}
			for _, n := range New().Candidates(v, class, capacity.Options{Forbidden: tc.forbidden}) {
				got = append(got, fmt.Sprintf("%s %s %s %s", n.Pool.Name, n.Labels[capacity.LabelZone], n.CapacityType, n.Offers[0].Type.Name))
				if err := checkOffers(n, capacity.Options{}); err != nil {
					t.Errorf("%s: %v", n.ID, err)
				}
				ids[n.ID] = true
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
			if len(ids) != len(got) {
				t.Errorf("%d IDs for %d nodes", len(ids), len(got))
			}
		})
	}
}

// A filter may require a zone although nothing that the planner knows does.
func TestFixZone(t *testing.T) {
	v := viewOf(t, 1, asking("web", "cpu=1"))
	for _, fix := range []bool{false, true} {
		p := Decide(v, capacity.Options{FixZone: map[capacity.ClassKey]bool{v.Demand[0].Class.Key: fix}})
		if _, fixed := p.Nodes[0].Labels[capacity.LabelZone]; fixed != fix {
			t.Errorf("zone fixed: %v, want %v", fixed, fix)
		}
	}
}

// The text about refusals by filters is true: "every" if nothing is left, otherwise how many were tried.
func TestRefusalsByFiltersSayHowMuchWasTried(t *testing.T) {
	full := testPool("full")
	full.Limits = capacity.Resources{capacity.ResourceNodes: 0}
	for _, tc := range []struct {
		name  string
		pools []*capacity.Pool
		want  string
	}{
		{"nothing is left", []*capacity.Pool{testPool("default")},
			"the scheduler's Picky filter refuses the pod on every node that could be launched for it (1 tried, one for each node pool, zone and capacity type): no"},
		{"another pool is full for now", []*capacity.Pool{testPool("default"), full},
			"default: the scheduler's Picky filter refuses the pod on the nodes that were tried (1, one for each node pool, zone and capacity type): no; full: limit of nodes 0 reached: 0 left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools = tc.pools
			p := Decide(v, capacity.Options{Forbidden: []capacity.Forbidden{{Class: v.Demand[0].Class.Key, Pool: "default", Plugin: "Picky", Reason: "no"}}})
			if diff := cmp.Diff(tc.want, p.Refused[0].Message); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
