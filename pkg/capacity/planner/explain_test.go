package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestExplain(t *testing.T) {
	for _, tc := range []struct {
		name string
		view func(t *testing.T) *capacity.View
		pod  types.UID
		want string
	}{
		{name: "a new node, past nodes that are there", pod: "web-0", view: func(t *testing.T) *capacity.View {
			full, cordoned := testNode("full", "a", 0, 8), testNode("cordoned", "a", 8, 8)
			cordoned.Unschedulable = true
			tainted := testNode("tainted", "a", 8, 8)
			tainted.Taints = []corev1.Taint{{Key: "team", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
			v := viewOf(t, 1, asking("web", "cpu=1 memory=1Gi"), full, testNode("full-too", "a", 0, 8), cordoned, tainted)
			heavy, spare := testPool("heavy"), testPool("spare")
			heavy.Weight, heavy.Limits = 10, capacity.Resources{"cpu": 1000}
			spare.Weight = -1
			arm, static, unready := testPool("arm"), testPool("static"), testPool("unready")
			arm.Weight, arm.Taints = -2, []corev1.Taint{{Key: "arm", Effect: corev1.TaintEffectNoSchedule}}
			replicas := int64(2)
			static.Weight, static.Replicas = -3, &replicas
			unready.Weight, unready.Unready = -4, "its class isn't ready"
			v.Pools = []*capacity.Pool{heavy, v.Pools[0], spare, arm, static, unready}
			return v
		}, want: `
			it is on a new node of pool default: c.2, on-demand, at 0.0800 $/h, which it has for itself
			the pods planned for the node, daemons included, use 53 % of its cpu, 28 % of its memory, 3 % of its pods; 12 instance types hold them, and this is the cheapest
			4 of the nodes that are there don't take it: 2 with too little cpu, 1 cordoned, 1 with the taint team=x:NoSchedule
			its share of the node costs 0.0421 $/h; the cheapest node of its own would be c.2 at 0.0800 $/h
			pool heavy (weight 10): limit of cpu 1 reached: 1 left
			pool spare comes after pool default by weight
			pool arm (weight -2): taint arm:NoSchedule is not tolerated
			pool static (weight -3): it is a static pool of 2 nodes, and none are launched for pods
			pool unready (weight -4): its class isn't ready
			`},
		{name: "an existing node", pod: "web-0", view: func(t *testing.T) *capacity.View {
			flight := testNode("flight", "a", 8, 8)
			flight.InFlight = true
			return viewOf(t, 1, asking("web", "cpu=1"), testNode("full", "a", 0, 8), flight, testNode("later", "a", 8, 8))
		}, want: `
			it is on node flight, which is being launched and has capacity for it
			1 of the nodes that were tried before it don't take it: 1 with too little cpu
			`},
		{name: "nodes that are being removed or are late", pod: "web-0", view: func(t *testing.T) *capacity.View {
			removed, late := testNode("removed", "a", 8, 8), testNode("late", "a", 8, 8)
			late.InFlight = true
			removed.Closed, late.Closed = true, true
			return viewOf(t, 1, asking("web", "cpu=100", on(capacity.LabelZone, "a")), testNode("small", "a", 8, 8), removed, late)
		}, want: `
			it fits nowhere
			3 of the nodes that are there don't take it: 2 about to be removed or not registered in time, 1 with too little cpu
			pool default: none of 12 instance types has capacity for it: cpu 100 requested, 15.9 at most
			`},
		{name: "spread, affinity and preferences", pod: "web-1", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 3, asking("web", "cpu=1800m", withSpread(capacity.LabelZone), preferring(capacity.LabelZone, "nowhere"), away("db", capacity.LabelZone)),
				testNode("n1", "a", 0, 8, running("web")), testNode("n2", "c", 0, 8), testNode("n3", "b", 0, 8))
		}, want: `
			it is on a new node of pool default: c.2, on-demand in c, at 0.0800 $/h, which it has for itself
			the pods planned for the node, daemons included, use 95 % of its cpu, 3 % of its pods; 12 instance types hold them, and this is the cheapest
			3 of the nodes that are there don't take it: 3 with too little cpu
			its share of the node costs 0.0758 $/h; the cheapest node of its own would be c.2 at 0.0800 $/h
			topology spread (maxSkew 1) over topology.kubernetes.io/zone, here c; other pods that it counts: a 2, b 1, c 0
			pod anti-affinity over topology.kubernetes.io/zone, here c; other pods that it counts: none
			preferences that were given up, since nothing met them: preferred node affinity (1)
			`},
		{name: "a pod that fits nowhere", pod: "web-0", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=100", on(capacity.LabelZone, "a")), testNode("small", "a", 8, 8))
		}, want: `
			it fits nowhere
			1 of the nodes that are there don't take it: 1 with too little cpu
			pool default: none of 12 instance types has capacity for it: cpu 100 requested, 15.9 at most
			`},
		{name: "a pod that isn't in the demand", pod: "other", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := tc.view(t)
			p := Decide(v, capacity.Options{Explain: []types.UID{tc.pod}})
			var got []string
			for _, e := range p.Explanations {
				got = append(got, e.Lines...)
				placed := slices.ContainsFunc(p.Placements, func(pl capacity.Placement) bool { return pl.Pod == e.Pod && pl.Node == e.Node })
				if placed != (e.Node != "") || e.Pod.UID != tc.pod {
					t.Errorf("explained %v on %q, placed there: %v", e.Pod, e.Node, placed)
				}
			}
			want := strings.TrimSpace(strings.ReplaceAll(tc.want, "\t", ""))
			if diff := cmp.Diff(want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
			// Explaining a plan must not change it.
			if diff := cmp.Diff(summary(Decide(v, capacity.Options{})), summary(p)); diff != "" {
				t.Errorf("plan (-unexplained +explained):\n%s", diff)
			}
		})
	}
}
