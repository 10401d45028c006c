// Package pods builds pods for tests.
package pods

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of returns a pod of a ReplicaSet with one container; requests have the form "cpu=1", "memory=1Gi".
func Of(name string, requests ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-x", Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: new(true)}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: Amounts(requests...)}}},
			Tolerations: NotReadyFor(300)},
	}
}

// NotReadyFor returns the tolerations that the API server's admission adds, with its default of 300 seconds, or with the seconds given.
func NotReadyFor(seconds ...int64) (out []corev1.Toleration) {
	for i := range seconds {
		out = append(out, corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds[i]})
	}
	return out
}

// Amounts returns resources of the form "cpu=1", "memory=1Gi".
func Amounts(amounts ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, a := range amounts {
		name, amount, _ := strings.Cut(a, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

// Requires returns a requirement on a node's label.
func Requires(key, operator string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOperator(operator), Values: values}
}

// NodeAffinity returns an affinity with one required term per requirement, ORed.
func NodeAffinity(terms ...corev1.NodeSelectorRequirement) *corev1.Affinity {
	s := &corev1.NodeSelector{}
	for _, e := range terms {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{e}})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}}
}
