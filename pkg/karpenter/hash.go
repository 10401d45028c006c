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

// Stamp is a hash and its version, as annotations with the given keys.
type Stamp struct{ HashKey, VersionKey, Hash string }

// PoolStamp returns the stamp that a pool, and each claim that is created for it, should have.
func PoolStamp(np *karpv1.NodePool) Stamp {
	return Stamp{karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey, PoolHash(np)}
}

// On reports whether an object's annotations contain the stamp.
func (s Stamp) On(annotations map[string]string) bool {
	return annotations[s.HashKey] == s.Hash && s.Current(annotations)
}

// Current reports whether an object's annotations contain a hash of our version, which alone can be compared.
func (s Stamp) Current(annotations map[string]string) bool {
	return annotations[s.VersionKey] == cloudprovider.HashVersion
}

// Put writes the stamp to annotations.
func (s Stamp) Put(annotations map[string]string) {
	annotations[s.HashKey], annotations[s.VersionKey] = s.Hash, cloudprovider.HashVersion
}
