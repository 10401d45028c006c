package objects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

func TestWhoseDaemonSet(t *testing.T) {
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		want   string
	}{
		"a DaemonSet's":                              {[]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", Controller: new(true)}}, "kube-system/agent"},
		"an advanced DaemonSet's":                    {[]metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1", Kind: "DaemonSet", Name: "agent", Controller: new(true)}}, "kube-system/agent"},
		"a ReplicaSet's":                             {[]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: new(true)}}, ""},
		"a DaemonSet owns it and doesn't control it": {[]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent"}}, ""},
		"nobody's":                                   {nil, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", OwnerReferences: tc.owners}}
		if got := DaemonSetKey(pod); got != tc.want || OfDaemonSet(pod) != (tc.want != "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestClaimNames(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	scratch := corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	data := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}
	if got, want := ClaimName(pod, &scratch), ephemeral.VolumeClaimName(pod, &scratch); got != want {
		t.Errorf("%q, its controller says %q", got, want)
	}
	if got := ClaimName(pod, &data); got != "disk" {
		t.Errorf("%q", got)
	}
	if got := ClaimName(pod, &corev1.Volume{Name: "none"}); got != "" {
		t.Errorf("%q", got)
	}
}

func TestPosted(t *testing.T) {
	readyCond := func(status corev1.ConditionStatus, reason string) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason}}
	}
	for _, tc := range []struct {
		name   string
		status corev1.NodeStatus
		want   bool
	}{
		{name: "a Node made ahead has not been posted", want: false},
		{name: "a kubelet version comes from a kubelet", status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1"}}, want: true},
		{name: "so does a Ready condition", status: corev1.NodeStatus{Conditions: readyCond("False", "KubeletNotReady")}, want: true},
		{name: "but not the one the controller manager writes when nobody came",
			status: corev1.NodeStatus{Conditions: readyCond("Unknown", "NodeStatusNeverUpdated")}, want: false},
		{name: "a kubelet that went silent had posted", status: corev1.NodeStatus{Conditions: readyCond("Unknown", "NodeStatusUnknown")}, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Posted(&corev1.Node{Status: tc.status}); got != tc.want {
				t.Errorf("Posted = %v, want %v", got, tc.want)
			}
		})
	}
}
