package pending

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestGroupOf(t *testing.T) {
	for _, tc := range []struct {
		name string
		pod  corev1.Pod
		want Group
	}{
		{"alone", corev1.Pod{}, Group{}},
		{"Coscheduling", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Labels: map[string]string{LabelGroup: "g"}}}, Group{"d", "g", false}},
		{"in tree", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d"},
			Spec: corev1.PodSpec{SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")}}}, Group{"d", "g", true}},
	} {
		if got := GroupOf(&tc.pod); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
