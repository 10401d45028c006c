package lifecycle

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Each registered node is reported once, with what its kubelet says, and not before it has registered.
func TestNodesThatRegisteredAreReported(t *testing.T) {
	w := newWorld(t)
	var told []string
	w.registered = func(c *karpv1.NodeClaim, n *corev1.Node) {
		told = append(told, c.Name+" "+n.Name+" "+n.Status.NodeInfo.KubeletVersion)
	}
	claim, inst := w.launched("a", func(*karpv1.NodeClaim) {})
	w.createNode(nodeFor(claim, *inst))
	w.step()
	if len(told) != 0 {
		t.Errorf("told before the kubelet came: %q", told)
	}
	w.kubelet(inst.NodeName)
	for range 3 {
		w.step()
	}
	want := []string{"a " + inst.NodeName + " " + w.node(inst.NodeName).Status.NodeInfo.KubeletVersion}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// A claim's Node is reported before the taint is removed that keeps pods off: otherwise pods that were refused before take the capacity of
// those it was launched for, and of DaemonSets.
func TestNodesAreNamedBeforePodsMayGoThere(t *testing.T) {
	w := newWorld(t)
	var told []string
	w.registering = func(claim, node, providerID string) {
		kept := hasTaintKey(w.node(node).Spec.Taints, karpv1.UnregisteredTaintKey)
		told = append(told, fmt.Sprint(claim, " ", node, " ", providerID, ", pods are kept off: ", kept))
	}
	claim, inst := w.launched("a", func(*karpv1.NodeClaim) {})
	w.createNode(nodeFor(claim, *inst))
	w.kubelet(inst.NodeName)
	for range 3 {
		w.step()
	}
	want := []string{"a " + inst.NodeName + " " + claim.Status.ProviderID + ", pods are kept off: true"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if hasTaintKey(w.node(inst.NodeName).Spec.Taints, karpv1.UnregisteredTaintKey) {
		t.Error("the Node is not registered")
	}
}
