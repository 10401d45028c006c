package explain

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// What is reserved on a new node for pods that move there is neither free nor for DaemonSets, until these pods are there, and not for ever.
func TestCapacityReservedForAMove(t *testing.T) {
	yes := true
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: &yes}}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}}}
	}
	allocatable := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	for name, tc := range map[string]struct {
		pods           []client.Object
		launching      bool
		initialized    time.Duration // ago; 0: it isn't
		reserved, free int64         // millicores
	}{
		"starting":                   {pods: []client.Object{pod("a", "old"), pod("b", "old")}, reserved: 2000, free: 2000},
		"its Node isn't there yet":   {pods: []client.Object{pod("a", "old"), pod("b", "old")}, launching: true, reserved: 2000, free: 2000},
		"ready":                      {pods: []client.Object{pod("a", "old"), pod("b", "old")}, initialized: time.Minute, reserved: 2000, free: 2000},
		"one has moved":              {pods: []client.Object{pod("a", "new"), pod("b", "old")}, initialized: time.Minute, reserved: 1000, free: 2000},
		"one is between":             {pods: []client.Object{pod("a", ""), pod("b", "old")}, initialized: time.Minute, reserved: 1000, free: 3000},
		"all have moved":             {pods: []client.Object{pod("a", "new"), pod("b", "new")}, initialized: time.Minute, free: 2000},
		"the move was given up":      {pods: []client.Object{pod("a", "old"), pod("b", "old")}, initialized: time.Hour, free: 4000},
		"the workload was scaled in": {initialized: time.Minute, free: 4000},
	} {
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Annotations: map[string]string{objects.AnnotationPlannedPods: `[{"pod":{},"owner":"rs","class":"c","order":1},{"pod":{},"owner":"rs","class":"c","order":2}]`}},
			Spec:   karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: nodeclass.Kind.Group, Kind: nodeclass.Kind.Kind, Name: "default"}},
			Status: karpv1.NodeClaimStatus{NodeName: "new", Allocatable: allocatable}}
		if tc.initialized > 0 {
			claim.Status.Conditions = conditions(karpv1.ConditionTypeInitialized)
			claim.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-tc.initialized))
		}
		set := (&manifest.Set{}).With(claim).With(tc.pods...)
		if tc.launching {
			claim.Status.NodeName = ""
		} else {
			set = set.With(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Status: corev1.NodeStatus{Allocatable: allocatable}})
		}
		c := clusterOf(set)
		o := &Overview{}
		c.nodes(o)
		reserved := o.Nodes[0].Reserved[corev1.ResourceCPU]
		if got := reserved.MilliValue(); len(o.Nodes) != 1 || got != tc.reserved || o.Nodes[0].Free(corev1.ResourceCPU) != tc.free {
			t.Errorf("%s: %d reserved, %d free; want %d, %d", name, got, o.Nodes[0].Free(corev1.ResourceCPU), tc.reserved, tc.free)
		}
		// A plan doesn't take that capacity for free either, where there is a node for it.
		held := resource.Quantity{}
		for _, p := range manifest.All[*corev1.Pod](c.withPromises(set)) {
			if p.Namespace == metav1.NamespaceSystem && p.Spec.NodeName == "new" {
				held.Add(p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU])
			}
		}
		if want := fmt.Sprint(tc.reserved); !tc.launching && fmt.Sprint(held.MilliValue()) != want {
			t.Errorf("%s: a plan holds %s, want %s", name, held.String(), want)
		}
	}
}
