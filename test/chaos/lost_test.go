package chaos

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// A receiving node whose Node or claim a user has deleted is lost, although the product taints it then. One that the product ends is not.
func TestNodesThatAUserDeletesAreLost(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	when := func(d time.Duration) *metav1.Time {
		if d < 0 {
			return nil
		}
		return &metav1.Time{Time: at.Add(d)}
	}
	for name, tc := range map[string]struct {
		node, claim time.Duration // when they were deleted; negative: they weren't
		want        bool          // lost
		user        bool          // a user deleted the claim
	}{
		"a user has deleted the Node":              {0, -1, true, false},
		"and the claim has followed":               {0, time.Second, true, false},
		"a user has deleted the claim":             {-1, 0, true, true},
		"the product has deleted the claim":        {-1, 0, false, false},
		"and the Node has followed":                {10 * time.Second, 0, false, false},
		"the product is about to delete the claim": {-1, -1, false, false},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", DeletionTimestamp: when(tc.node)}, Spec: corev1.NodeSpec{ProviderID: "aws:///a/i-1",
			Taints: []corev1.Taint{{Key: karpv1.DisruptedTaintKey}}}}
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", DeletionTimestamp: when(tc.claim)}, Status: karpv1.NodeClaimStatus{ProviderID: "aws:///a/i-1"}}
		e := &emptyings{nodes: map[string]*emptied{}, ended: map[string]bool{"c": tc.user}}
		m := &moment{view: &view{nodes: map[string]*corev1.Node{"n": node}, claims: map[string]*karpv1.NodeClaim{"c": claim}, live: map[string]bool{"aws:///a/i-1": true}}}
		if got := e.lost(m, &emptied{receivers: []string{"n"}}); got != tc.want {
			t.Errorf("%s: lost %v, want %v", name, got, tc.want)
		}
	}
}
