package provisioning

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
)

// filters refuse what the func objects to.
type filters struct {
	object func(node *corev1.Node) string
	trials int
	err    error
}

func (f *filters) Verify(_ context.Context, t capacity.Trial) ([]capacity.Rejection, error) {
	f.trials++
	nodes := map[string]*corev1.Node{}
	for _, n := range t.Nodes {
		nodes[n.Node.Name] = n.Node
	}
	var out []capacity.Rejection
	for i, s := range t.Steps {
		if why := f.object(nodes[s.Node]); why != "" {
			out = append(out, capacity.Rejection{Step: i, Plugin: "Picky", Reason: why})
		}
	}
	return out, f.err
}

type builder struct{}

func (builder) PlannedNode(p *capacity.PlannedNode, name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: p.Labels}}
}

// twoZones has a pod whose zone must be fixed, and two zones to buy a node in, the second at twice the price.
func twoZones(t *testing.T) *Scene {
	pod := unscheduled(0)
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpExists}}}}}}}
	class, err := capacity.ClassOf(pod, capacity.VolumeInfo{})
	if err != nil {
		t.Fatal(err)
	}
	small := smallType()
	small.Offers = []capacity.Offer{{Zone: "a", CapacityType: "on-demand", Price: 1, Available: true}, {Zone: "b", CapacityType: "on-demand", Price: 2, Available: true}}
	return &Scene{View: capacity.View{
		Pools:  []*capacity.Pool{{Name: "pool", Types: []*capacity.InstanceType{small}}},
		Demand: []capacity.Demand{{Class: class, Pods: []capacity.PodRef{capacity.RefOf(pod)}}},
	}}
}

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name    string
		object  func(zone string) string
		zones   []string
		cost    float64
		refused []string
		trials  int
	}{
		{name: "what the filters accept is the plan", object: func(string) string { return "" }, zones: []string{"a"}, cost: 1, trials: 1},
		{
			name: "what they refuse is planned once more elsewhere", zones: []string{"b"}, cost: 2, trials: 2,
			object: func(zone string) string {
				if zone == "a" {
					return "no a"
				}
				return ""
			},
		},
		{
			name: "what they refuse again is not bought", object: func(string) string { return "nowhere" }, trials: 2,
			refused: []string{"the scheduler's Picky filter refuses the pod on every node that could be launched for it (2 tried, one for each node pool, zone and capacity type): nowhere"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &filters{object: func(n *corev1.Node) string { return tc.object(n.Labels[corev1.LabelTopologyZone]) }}
			d := Decider{Planner: planner.New(), World: f, Nodes: builder{}, Pod: func(types.UID) *corev1.Pod { return nil }, Patience: defaultPatience, Clock: clocktesting.NewFakePassiveClock(time.Time{})}
			plan, err := d.Decide(t.Context(), twoZones(t), capacity.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var zones, refused []string
			for _, n := range plan.Nodes {
				zones = append(zones, n.Offers[0].Offer.Zone)
			}
			for _, r := range plan.Refused {
				refused = append(refused, r.Message)
			}
			if diff := cmp.Diff(tc.zones, zones); diff != "" {
				t.Errorf("zones of new nodes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.refused, refused); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
			if plan.CostPerHour != tc.cost || f.trials != tc.trials {
				t.Errorf("cost %v after %d trials, want %v after %d", plan.CostPerHour, f.trials, tc.cost, tc.trials)
			}
		})
	}
}

// What is refused to one pod of a class is forbidden to all its pods. Those that were accepted are kept nevertheless, unless they are of no
// use without the others.
func TestDecideKeepsWhatWasAccepted(t *testing.T) {
	for _, tc := range []struct {
		name            string
		gang            *capacity.Gang
		placed, refused int
	}{
		{name: "pods for themselves", placed: 1, refused: 1},
		{name: "a gang that one is enough for", gang: &capacity.Gang{Key: "gang", Missing: 1}, placed: 1, refused: 1},
		{name: "a gang that needs both", gang: &capacity.Gang{Key: "gang", Missing: 2}, refused: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scene := twoZones(t)
			d := &scene.Demand[0]
			second := d.Pods[0]
			second.UID, second.Name = "u1", "p1"
			d.Pods, d.Gang = append(d.Pods, second), tc.gang
			asked := 0
			f := &filters{object: func(*corev1.Node) string {
				if asked++; asked%2 == 0 {
					return "its volume is another's"
				}
				return ""
			}}
			plan, err := (&Decider{Planner: planner.New(), World: f, Nodes: builder{}, Pod: func(types.UID) *corev1.Pod { return nil }}).Decide(t.Context(), scene, capacity.Options{
				Forbidden: []capacity.Forbidden{{Class: d.Class.Key, Pool: "pool", Zone: "b"}}})
			if err != nil {
				t.Fatal(err)
			}
			refused := map[types.UID]bool{}
			for _, r := range plan.Refused {
				for _, ref := range r.Pods {
					refused[ref.UID] = true
				}
			}
			if len(plan.Placements) != tc.placed || len(plan.Nodes) != tc.placed || plan.CostPerHour != float64(tc.placed) || len(refused) != tc.refused {
				t.Errorf("%d pods on %d nodes at $%v/h, refused %v: want %d placed and %d refused", len(plan.Placements), len(plan.Nodes), plan.CostPerHour, plan.Refused, tc.placed, tc.refused)
			}
		})
	}
}

func TestDecideWithoutAJudgement(t *testing.T) {
	lost := errors.New("lost")
	f := &filters{object: func(*corev1.Node) string { return "" }, err: lost}
	d := Decider{Planner: planner.New(), World: f, Nodes: builder{}, Pod: func(types.UID) *corev1.Pod { return nil }}
	if plan, err := d.Decide(t.Context(), twoZones(t), capacity.Options{}); plan != nil || !errors.Is(err, lost) || !strings.Contains(err.Error(), "filters") {
		t.Errorf("plan %v, error %v: want none, and why", plan, err)
	}
}
