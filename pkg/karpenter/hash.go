package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// PoolHash changes when nodes of the pool's template would come out different in a way that only a new node can have: labels,
// annotations, taints, node class reference, expireAfter, terminationGracePeriod. It does not cover requirements, since a node that
// still satisfies them can stay, nor limits, weight and disruption settings. The order of lists doesn't matter.
func PoolHash(np *karpv1.NodePool) string {
	t := &np.Spec.Template
	h := struct {
		Labels, Annotations       map[string]string
		Taints, StartupTaints     []corev1.Taint
		NodeClassRef              *karpv1.NodeClassReference
		ExpireAfter, TerminateFor string
	}{Labels: t.Labels, Annotations: t.Annotations, Taints: t.Spec.Taints, StartupTaints: t.Spec.StartupTaints, NodeClassRef: t.Spec.NodeClassRef}
	if d := t.Spec.ExpireAfter.Duration; d != nil {
		h.ExpireAfter = d.String() // the parsed value, because 60m and 1h are equal
	}
	if d := t.Spec.TerminationGracePeriod; d != nil {
		h.TerminateFor = d.Duration.String()
	}
	return cloudprovider.Hash(h)
}
