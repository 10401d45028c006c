package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestManagedNodes(t *testing.T) {
	const own = "karpenter.k8s.aws/ec2nodeclass"
	owner := []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "a"}}
	for name, tc := range map[string]struct {
		by     string // the name of this Dovetail
		labels map[string]string
		owners []metav1.OwnerReference
		want   bool
	}{
		"of a pool":                                 {labels: map[string]string{"karpenter.sh/nodepool": "default", own: "default"}, want: true},
		"of a pool, made before labels":             {labels: map[string]string{"karpenter.sh/nodepool": "default"}, want: true},
		"of a claim without pool":                   {labels: map[string]string{own: "default"}, owners: owner, want: true},
		"of another API's NodeClaim":                {owners: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "NodeClaim", Name: "a"}}},
		"nobody's":                                  {labels: map[string]string{own: "default"}},
		"EKS Auto Mode's":                           {labels: map[string]string{"karpenter.sh/nodepool": "system", "eks.amazonaws.com/nodeclass": "default"}, owners: owner},
		"EKS Auto Mode's before its class is on it": {labels: map[string]string{"karpenter.sh/nodepool": "system", "eks.amazonaws.com/compute-type": "auto"}, owners: owner},
		"of EKS, but not of Auto Mode":              {labels: map[string]string{"karpenter.sh/nodepool": "default", "eks.amazonaws.com/compute-type": "ec2"}, want: true},
		"Azure's":                                   {labels: map[string]string{"karpenter.sh/nodepool": "system", "karpenter.azure.com/aksnodeclass": "default"}, owners: owner},
		"ours, whatever else it says":               {labels: map[string]string{"karpenter.sh/nodepool": "default", own: "default", "example.com/nodeclass": "x"}, want: true},
		"of a pool of a Dovetail with a name":       {labels: map[string]string{"karpenter.sh/nodepool": "default", own: "default", "dovetail.sh/managed-by": "blue"}},
		"of its own, with a name":                   {by: "blue", labels: map[string]string{"karpenter.sh/nodepool": "default", own: "default", "dovetail.sh/managed-by": "blue"}, want: true},
		"of a claim without pool, with a name":      {by: "blue", labels: map[string]string{own: "default", "dovetail.sh/managed-by": "blue"}, owners: owner, want: true},
		"of the other of two with names":            {by: "red", labels: map[string]string{"karpenter.sh/nodepool": "default", own: "default", "dovetail.sh/managed-by": "blue"}, owners: owner},
		"of one without a name, beside a name":      {by: "red", labels: map[string]string{"karpenter.sh/nodepool": "default", own: "default"}, owners: owner},
		"of any Dovetail, for who only looks":       {by: Anyone, labels: map[string]string{"karpenter.sh/nodepool": "default", own: "default", "dovetail.sh/managed-by": "blue"}, want: true},
		"EKS Auto Mode's, for who only looks":       {by: Anyone, labels: map[string]string{"karpenter.sh/nodepool": "system", "eks.amazonaws.com/nodeclass": "default"}},
	} {
		if got := (NodeClassLabel{Key: own, ManagedBy: tc.by}).Managed(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, OwnerReferences: tc.owners}}); got != tc.want {
			t.Errorf("%s: managed is %v", name, got)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"karpenter.sh/nodepool": "default", own: "default"}, OwnerReferences: owner}}
	if (NodeClassLabel{Key: "karpenter.example.com/examplenodeclass"}).Managed(node) {
		t.Error("another cloud manages it")
	}
}
