package launch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
)

// Nothing is planned on a node that is about to be removed, not even pods that tolerate everything.
func TestFencedNodesTakeNobody(t *testing.T) {
	w := newWorld(t)
	w.build()
	m := w.parts
	w.planner = planner.New()
	w.nodes["n"] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{labelPool: "pool", labelRegistered: "true", labelInitialized: "true"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("10")}},
	}
	m.Nodes.NodeCached(w.nodes["n"])
	if !w.reservations.Fence("n") {
		t.Fatal("no fence")
	}
	nothingIsPlannedOn(t, w, "n")
	m.Nodes.Close("n", "")
	w.reservations.Unfence("n")
	nothingIsPlannedOn(t, w, "n")

	// A node that the scheduler's cache doesn't have isn't cordoned: the cordon would never be lifted.
	m.Nodes.NodeUncached(w.nodes["n"])
	m.Nodes.Close("n", "")
	m.Nodes.NodeCached(w.nodes["n"])
	if why := w.reservations.Assume("u", "n", false); why != nil {
		t.Error(why)
	}
	if !m.Nodes.Close("n", "aws:///z/i-another") {
		t.Error("a pod is being bound there, and nobody says so")
	}
	if why := w.reservations.Assume("v", "n", false); why != nil {
		t.Errorf("the end of another machine: %s", why)
	}
}

func nothingIsPlannedOn(t *testing.T, w *world, node string) {
	t.Helper()
	m, pod := w.parts, w.pod(0)
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	w.pending.Handler().OnAdd(pod, false)
	class, err := w.pending.Classes.Class(pod)
	if err != nil {
		t.Fatal(err)
	}
	w.reservations.Submit(capacity.RefOf(pod), class)
	_, plan, err := m.Rounds.Propose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pl := range plan.Placements {
		if pl.Node == node {
			t.Error("planned on the node that is fenced")
		}
	}
}
