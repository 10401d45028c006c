package launch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The name that the kubelet of an unknown image registers with is not known: no Node is created ahead, and gates open when the kubelet has
// registered, whatever the name.
func TestNodeWhoseNameNobodyKnows(t *testing.T) {
	w := newWorld(t)
	w.unnamed = true
	w.run()
	w.submit(3)
	w.until("an instance recorded", func() bool {
		for _, c := range w.claims {
			if c.Launched && w.calls["Describe"] > 0 {
				return true
			}
		}
		return false
	})
	w.mu.Lock()
	if len(w.nodes) != 0 || len(w.bound) != 0 {
		t.Errorf("%d nodes, %d pods bound before the kubelet has come", len(w.nodes), len(w.bound))
	}
	var claim, providerID string
	for _, c := range w.claims {
		claim, providerID = c.Name, c.ProviderID
	}
	w.mu.Unlock()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "whatever", Labels: map[string]string{labelPool: "pool", labelRegistered: "true"}}}
	node.Spec.ProviderID = providerID
	if err := w.CreateNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.parts.Nodes.ClaimNamed(claim, "whatever", providerID)
	w.parts.Nodes.ClaimNamed(claim, "whatever", providerID) // repeated with each change of the claim
	w.allBound(3)
}
