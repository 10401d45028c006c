package launch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestRoomier(t *testing.T) {
	node := func(change ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
		for _, f := range change {
			f(n)
		}
		return n
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	tainted := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} }
	bigger := func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("5") }
	gpu := func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("1") }
	ready := func(n *corev1.Node) { n.Labels[labelInitialized] = "true" }
	heartbeat := func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} }
	for _, tc := range []struct {
		name        string
		before, now *corev1.Node
		want        bool
	}{
		{"it is new", nil, node(), true},
		{"nothing changed", node(), node(), false},
		{"it said that it lives", node(), node(heartbeat), false},
		{"it takes pods again", node(cordoned), node(), true},
		{"it was cordoned", node(), node(cordoned), false},
		{"a taint went", node(tainted), node(), true},
		{"a taint came", node(), node(tainted), false},
		{"it grew", node(), node(bigger), true},
		{"it shrank", node(bigger), node(), false},
		{"it has devices now", node(), node(gpu), true},
		{"it is initialized", node(), node(ready), true},
	} {
		if got := roomier(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

func TestComingUp(t *testing.T) {
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	}
	states := nodeStates{nodeClass: capacity.NodeClassLabel{Key: "karpenter.k8s.aws/ec2nodeclass"}}
	ours, up := map[string]string{labelPool: "p"}, map[string]string{labelPool: "p", labelInitialized: "true"}
	for _, tc := range []struct {
		name        string
		before, now *corev1.Node
		want        bool
	}{
		{"a node of ours is made", nil, node(ours), true},
		{"it grows before it is initialized", node(ours), node(ours), true},
		{"it is initialized", node(ours), node(up), true},
		{"a node of EKS Auto Mode comes up", nil, node(map[string]string{labelPool: "p", "eks.amazonaws.com/compute-type": "auto"}), false},
		{"it grows afterwards", node(up), node(up), false},
		{"a node of somebody else comes", nil, node(nil), false},
	} {
		if got := states.comingUp(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

// A node that was unhealthy for a moment has no more capacity than before: no reason to leave an instance in flight.
func TestRecovered(t *testing.T) {
	node := func(cpu string, taints ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{labelPool: "p", labelInitialized: "true"}}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		return n
	}
	for _, tc := range []struct {
		name        string
		before, now *corev1.Node
		want        bool
	}{
		{"its kubelet reports again", node("4", corev1.TaintNodeNotReady), node("4"), true},
		{"one of two illnesses is over", node("4", corev1.TaintNodeNotReady, corev1.TaintNodeMemoryPressure), node("4", corev1.TaintNodeMemoryPressure), true},
		{"and it has grown", node("4", corev1.TaintNodeNotReady), node("8"), false},
		{"somebody has opened it", node("4", "example.com/closed"), node("4"), false},
		{"it is new", nil, node("4"), false},
	} {
		if got := recovered(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
