package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Each registered node is told once, with what its kubelet says, and not before there is one.
func TestNodesThatCameAreTold(t *testing.T) {
	w := newWorld(t)
	var told []string
	w.c.came = func(c *karpv1.NodeClaim, n *corev1.Node) {
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
