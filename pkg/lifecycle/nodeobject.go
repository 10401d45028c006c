package lifecycle

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func hasFinalizer(obj metav1.Object) bool {
	for _, f := range obj.GetFinalizers() {
		if f == karpv1.TerminationFinalizer {
			return true
		}
	}
	return false
}

func addFinalizer(obj metav1.Object) {
	if !hasFinalizer(obj) {
		obj.SetFinalizers(append(obj.GetFinalizers(), karpv1.TerminationFinalizer))
	}
}

func dropFinalizer(obj metav1.Object) {
	var out []string
	for _, f := range obj.GetFinalizers() {
		if f != karpv1.TerminationFinalizer {
			out = append(out, f)
		}
	}
	obj.SetFinalizers(out)
}

func dropTaint(node *corev1.Node, taintKey string) {
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Key != taintKey {
			out = append(out, t)
		}
	}
	node.Spec.Taints = out
}

func setTaint(node *corev1.Node, t corev1.Taint) {
	if !hasTaint(node.Spec.Taints, &t) {
		node.Spec.Taints = append(node.Spec.Taints, t)
	}
}
