package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// testPod returns a pod of a ReplicaSet with one container; requests have the form "cpu=1", "memory=1Gi".
func testPod(name string, requests ...string) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-" + "x", Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: &yes}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: testList(requests...)}}},
			Tolerations: notReadyFor(300)},
	}
}

// notReadyFor returns the tolerations that the API server's admission adds, with its default of 300 seconds, or with the seconds given.
func notReadyFor(seconds ...int64) (out []corev1.Toleration) {
	for i := range seconds {
		out = append(out, corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds[i]})
	}
	return out
}

func testList(amounts ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, a := range amounts {
		var name, amount string
		for i := range a {
			if a[i] == '=' {
				name, amount = a[:i], a[i+1:]
			}
		}
		out[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

func mustClass(t testing.TB, pod *corev1.Pod) *capacity.Class {
	t.Helper()
	c, err := capacity.ClassOf(pod, capacity.VolumeInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func expr(key, op string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOperator(op), Values: values}
}

// nodeAffinity returns an affinity with one required term per expression, ORed.
func nodeAffinity(terms ...corev1.NodeSelectorRequirement) *corev1.Affinity {
	s := &corev1.NodeSelector{}
	for _, e := range terms {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{e}})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}}
}
