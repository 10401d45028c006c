package outside

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func asks(app, node, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: app, Labels: map[string]string{appLabel: app}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func alone(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname}}}}
}

func TestPlace(t *testing.T) {
	node := func(name, cpu string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse("10")}}}
	}
	two := []*corev1.Node{node("a", "4"), node("b", "4")}
	for _, tc := range []struct {
		name  string
		nodes []*corev1.Node
		there []*corev1.Pod
		move  []*corev1.Pod
		want  Answer
	}{
		{name: "beside others", nodes: two, there: []*corev1.Pod{asks("x", "a", "3"), asks("x", "b", "1")}, move: []*corev1.Pod{asks("y", "", "1"), asks("y", "", "3")}, want: Fits},
		{name: "one after the other only in one order", nodes: two, move: []*corev1.Pod{asks("y", "", "1"), asks("y", "", "2"), asks("y", "", "2"), asks("y", "", "3")}, want: Fits},
		{name: "too much in all", nodes: two, there: []*corev1.Pod{asks("x", "a", "3")}, move: []*corev1.Pod{asks("y", "", "3"), asks("y", "", "3")}, want: FitsNot},
		{name: "in all there is enough, nowhere for one", nodes: two, there: []*corev1.Pod{asks("x", "a", "2"), asks("x", "b", "2")}, move: []*corev1.Pod{asks("y", "", "3")}, want: FitsNot},
		{name: "each fits, not all", nodes: two, move: []*corev1.Pod{asks("y", "", "3"), asks("y", "", "3"), asks("y", "", "2")}, want: Undecided},
		{name: "no node", move: []*corev1.Pod{asks("y", "", "1")}, want: FitsNot},
		{name: "a taint", nodes: []*corev1.Node{node("a", "4", karpv1.DisruptedNoScheduleTaint)}, move: []*corev1.Pod{asks("y", "", "1")}, want: FitsNot},
		{name: "kept apart", nodes: two, there: []*corev1.Pod{asks("y", "a", "1", alone)}, move: []*corev1.Pod{asks("y", "", "1", alone)}, want: Fits},
		{name: "kept apart, no other host", nodes: two[:1], there: []*corev1.Pod{asks("y", "a", "1", alone)}, move: []*corev1.Pod{asks("y", "", "1", alone)}, want: FitsNot},
	} {
		names := Resources(tc.move)
		if got := Place(tc.move, FreeOn(tc.nodes, tc.there, names), names); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
