package integration

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// kubectl scale works on a NodePool with replicas: the scale subresource, on a real API server.
func TestStaticPoolIsScaled(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, strings.Replace(nodePool, "\nspec:\n", "\nspec:\n  replicas: 1\n", 1))
	nodes := func(n int64) {
		t.Helper()
		until(e, &karpv1.NodePoolList{}, "default", fmt.Sprintf("of %d nodes", n), func(np *karpv1.NodePool) bool {
			return np.Status.Nodes != nil && *np.Status.Nodes == n
		})
	}
	nodes(1)
	for _, n := range []int64{3, 0} {
		np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		body := &client.SubResourcePatchOptions{SubResourceBody: &autoscalingv1.Scale{}}
		if err := e.api.SubResource("scale").Patch(e.ctx, np, patch, body); err != nil {
			t.Fatal(err)
		}
		nodes(n)
	}
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(o []*karpv1.NodeClaim) (bool, string, error) {
		return len(o) == 0, "the claims to be gone", nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(e.sim.Live()); n != 0 {
		t.Errorf("%d instances live after the pool was scaled to none", n)
	}
}
