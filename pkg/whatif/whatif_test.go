package whatif

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var yes = true

func pod(name, node string, owner string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "o", UID: "o", Controller: &yes}}
	}
	return p
}

func claim(name, node string, planned string) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		Annotations: map[string]string{objects.AnnotationPlannedPods: `[{"pod":{"namespace":"shop","name":"` + planned + `","uid":"` + planned + `"},"class":"c","order":1}]`}},
		Spec:   karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: nodeclass.Kind.Group, Kind: nodeclass.Kind.Kind, Name: "default"}},
		Status: karpv1.NodeClaimStatus{NodeName: node}}
}

// nodes returns the node of each pod.
func nodes(set *manifest.Set) map[string]string {
	out := map[string]string{}
	for _, p := range manifest.All[*corev1.Pod](set) {
		out[p.Name] = p.Spec.NodeName
	}
	return out
}

// Pods with a reservation are not planned again: those whose node is there are on it, the others are left out. What was planned for a pod
// that is bound, or on a claim that ends, doesn't count.
func TestBooked(t *testing.T) {
	ending := claim("ending", "", "d")
	ending.DeletionTimestamp = &metav1.Time{}
	ending.DeletionTimestamp.Time = ending.DeletionTimestamp.AddDate(2026, 0, 0)
	set := (&manifest.Set{}).With(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, claim("there", "node", "a"), claim("launching", "", "b"), claim("old", "node", "c"), ending,
		pod("a", "", ""), pod("b", "", ""), pod("c", "elsewhere", ""), pod("d", "", ""))
	after, bookings := Booked(set, &nodeclass.Kind)
	if diff := cmp.Diff(map[string]string{"a": "node", "c": "elsewhere", "d": ""}, nodes(after)); diff != "" {
		t.Errorf("nodes of pods (-want +got):\n%s", diff)
	}
	got := map[types.UID]string{}
	for uid, b := range bookings {
		got[uid] = b.Claim.Name
	}
	if diff := cmp.Diff(map[types.UID]string{"a": "there", "b": "launching"}, got); diff != "" {
		t.Errorf("bookings (-want +got):\n%s", diff)
	}
	if before := nodes(set)["a"]; before != "" {
		t.Errorf("the objects that were read have changed: a is on %s", before)
	}
}

func TestWithout(t *testing.T) {
	static, ended := pod("static", "node", ""), pod("ended", "node", "ReplicaSet")
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	ended.Status.Phase = corev1.PodSucceeded
	set := (&manifest.Set{}).With(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, claim("claim", "node", "x"), claim("other", "else", "y"),
		pod("web", "node", "ReplicaSet"), pod("agent", "node", "DaemonSet"), pod("alone", "node", ""), static, ended, pod("far", "else", "ReplicaSet"))
	after, gone, err := Without(set, []string{"node"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"web": "", "far": "else"}, nodes(after)); diff != "" {
		t.Errorf("nodes of pods (-want +got):\n%s", diff)
	}
	if len(gone.Moved) != 1 || len(gone.Lost) != 1 || gone.Lost[0].Name != "alone" || gone.Moved[0].Spec.NodeName != "node" {
		t.Errorf("moved %v, lost %v", gone.Moved, gone.Lost)
	}
	if claims := manifest.All[*karpv1.NodeClaim](after); len(claims) != 1 || claims[0].Name != "other" {
		t.Errorf("claims that are left: %v", claims)
	}
	if _, _, err := Without(set, []string{"nope"}); err == nil || err.Error() != "there is no node nope" {
		t.Errorf("the error is %v", err)
	}
}

// A node that is named twice counts once. Pods of the node come after those that wait, which get their nodes before it ends.
func TestWithoutANodeNamedTwice(t *testing.T) {
	set := (&manifest.Set{}).With(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, pod("first", "node", "ReplicaSet"), pod("waits", "", "ReplicaSet"))
	after, gone, err := Without(set, []string{"node", "node"})
	if err != nil {
		t.Fatal(err)
	}
	if len(gone.Nodes) != 1 || len(gone.Moved) != 1 {
		t.Errorf("without nodes %v, moved %v: want one of each", gone.Nodes, gone.Moved)
	}
	var order []string
	for _, p := range manifest.All[*corev1.Pod](after) {
		order = append(order, p.Name)
	}
	if diff := cmp.Diff([]string{"waits", "first"}, order); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// A claim whose instance is starting is called like the node that stands for it until there is one: both are gone.
func TestWithoutAClaimWithoutANode(t *testing.T) {
	starting := claim("starting", "", "a")
	starting.Labels = map[string]string{corev1.LabelInstanceTypeStable: "m1.large", karpv1.NodePoolLabelKey: "general"}
	starting.Status.ProviderID = "aws:///eu-test-1a/i-0"
	starting.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	starting.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	booked, _ := Booked((&manifest.Set{}).With(starting, claim("other", "", "b"), pod("a", "", "ReplicaSet")), &nodeclass.Kind)
	after, gone, err := Without(booked, []string{"starting"})
	if err != nil {
		t.Fatal(err)
	}
	if claims := manifest.All[*karpv1.NodeClaim](after); len(claims) != 1 || claims[0].Name != "other" {
		t.Errorf("claims that are left: %v", claims)
	}
	if len(gone.Moved) != 1 || len(manifest.All[*corev1.Node](after)) != 0 {
		t.Errorf("moved %v, nodes that are left %v", gone.Moved, manifest.All[*corev1.Node](after))
	}
}
