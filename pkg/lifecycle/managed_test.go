package lifecycle

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// EKS Auto Mode's nodes have Karpenter's labels, finalizer and owners. Whatever happens to them, nothing is written on them, and their
// instances are neither tagged nor terminated, even if those look like ours.
func TestNodesOfEKSAutoModeAreLeftAlone(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"as they are":           {"eks.amazonaws.com/compute-type": "auto", "eks.amazonaws.com/nodeclass": "default"},
		"before their class":    {"eks.amazonaws.com/compute-type": "auto"},
		"without compute type":  {"eks.amazonaws.com/nodeclass": "default"},
		"registered, not ready": {"eks.amazonaws.com/compute-type": "auto", karpv1.NodeRegisteredLabelKey: "true"},
	} {
		for event, happens := range map[string]func(w *world){
			"nothing": func(*world) {},
			"its NodeClaim has gone and its Node is deleted": func(w *world) {
				if err := w.kube.CoreV1().Nodes().Delete(w.ctx, "auto", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			},
			"its instance is not listed": func(w *world) { delete(w.cloud.instances, "i-auto") },
			"its kubelet comes":          func(w *world) { w.kubelet("auto") },
		} {
			t.Run(name+", "+event, func(t *testing.T) {
				w := newWorld(t)
				inst := w.cloud.launch("i-auto", "lost")
				labels := maps.Clone(labels)
				labels[karpv1.NodePoolLabelKey] = "general-purpose"
				w.createNode(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "auto", UID: "auto", Labels: labels, Finalizers: []string{karpv1.TerminationFinalizer},
						OwnerReferences: []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "general-purpose-1", UID: "theirs"}}},
					Spec: corev1.NodeSpec{ProviderID: inst.ProviderID, Taints: []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}},
				})
				w.pod("web", "auto")
				happens(w)
				before := w.node("auto")
				for range 4 {
					w.clock.Step(time.Minute)
					w.sync()
					if _, err := w.c.reconcile(w.ctx, key{}); err != nil {
						t.Fatal(err)
					}
					w.pass(10*time.Second, time.Second)
				}
				if diff := cmp.Diff(before, w.node("auto")); diff != "" {
					t.Errorf("the Node was written to (-want +got):\n%s", diff)
				}
				for _, call := range []string{"Terminate", "TagClaim"} {
					if w.cloud.calls[call] > 0 {
						t.Errorf("%s was called", call)
					}
				}
				if len(w.evicted) > 0 {
					t.Errorf("evicted: %v", w.evicted)
				}
				seen, err := HideEphemeralTaints(ownClass)(before)
				if err != nil || len(seen.(*corev1.Node).Spec.Taints) != len(before.Spec.Taints) {
					t.Errorf("taints are hidden from the scheduler: %v, %v", seen.(*corev1.Node).Spec.Taints, err)
				}
			})
		}
	}
}
