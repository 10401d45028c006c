package capacity

import (
	corev1 "k8s.io/api/core/v1"
)

// TaintDisrupted is the key of Karpenter's taint on nodes that it is about to drain, which Dovetail uses, too.
const TaintDisrupted = "karpenter.sh/disrupted"

// Tolerates reports whether one of the tolerations tolerates the taint (k8s.io/api core/v1, Toleration).
func Tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	for i := range tolerations {
		t := &tolerations[i]
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			continue
		}
		switch t.Operator {
		case corev1.TolerationOpExists:
			return true
		case "", corev1.TolerationOpEqual:
			if t.Key != "" && t.Value == taint.Value {
				return true
			}
		}
	}
	return false
}

// Untolerated returns the first NoSchedule or NoExecute taint that is not tolerated, or nil.
func Untolerated(tolerations []corev1.Toleration, taints []corev1.Taint) *corev1.Taint {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !Tolerates(tolerations, &taints[i]) {
			return &taints[i]
		}
	}
	return nil
}
