package launch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Pods that can't bear a node that isn't Ready go there when the taint has gone, too: it follows the condition with a lag, and it is the
// taint that they would be evicted by, whether the scheduler sees it or not.
func TestReadyIsWithoutItsTaint(t *testing.T) {
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}
	for _, tc := range []struct {
		name   string
		says   corev1.ConditionStatus
		hidden []corev1.Taint
		want   bool
	}{
		{"no word of its kubelet", "", nil, false},
		{"not Ready", corev1.ConditionFalse, []corev1.Taint{notReady}, false},
		{"Ready, and the taint is still there", corev1.ConditionTrue, []corev1.Taint{notReady}, false},
		{"Ready", corev1.ConditionTrue, []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoSchedule}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := nodeStates{taints: func(*corev1.Node) []corev1.Taint { return tc.hidden }}
			n := &corev1.Node{}
			if tc.says != "" {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.says}}
			}
			if got := s.status(n).Ready; got != tc.want {
				t.Errorf("ready: %t, want %t", got, tc.want)
			}
		})
	}
}
