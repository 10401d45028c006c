package lifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhoseNodes(t *testing.T) {
	owner := []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "a"}}
	for name, tc := range map[string]struct {
		labels map[string]string
		owners []metav1.OwnerReference
		want   bool
	}{
		"of a pool":                     {labels: map[string]string{"karpenter.sh/nodepool": "default", nodeClassLabel: "default"}, want: true},
		"of a pool, made before labels": {labels: map[string]string{"karpenter.sh/nodepool": "default"}, want: true},
		"of a claim without pool":       {labels: map[string]string{nodeClassLabel: "default"}, owners: owner, want: true},
		"nobody's":                      {labels: map[string]string{nodeClassLabel: "default"}},
		"EKS Auto Mode's":               {labels: map[string]string{"karpenter.sh/nodepool": "system", "eks.amazonaws.com/nodeclass": "default"}, owners: owner},
		"Azure's":                       {labels: map[string]string{"karpenter.sh/nodepool": "system", "karpenter.azure.com/aksnodeclass": "default"}, owners: owner},
		"ours, whatever else it says":   {labels: map[string]string{"karpenter.sh/nodepool": "default", nodeClassLabel: "default", "example.com/nodeclass": "x"}, want: true},
	} {
		if got := managed(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, OwnerReferences: tc.owners}}); got != tc.want {
			t.Errorf("%s: managed is %v", name, got)
		}
	}
}
