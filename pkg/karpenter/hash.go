package karpenter

import (
	"github.com/awslabs/operatorpkg/status"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// Stamp is a hash and its version, as annotations with the given keys. Hashes and versions are Karpenter's own, so that both agree on
// which nodes have drifted.
type Stamp struct{ HashKey, VersionKey, Hash, Version string }

// PoolStamp returns what the annotations of a pool, and of the claims that are created for it, should say. The hash changes when nodes of
// the pool's template would come out different in a way that only a new node can have: labels, annotations, taints, node class reference,
// expireAfter, terminationGracePeriod. It does not cover requirements, since a node that still satisfies them can stay, nor limits,
// weight and disruption settings. The order of lists doesn't matter.
func PoolStamp(np *karpv1.NodePool) Stamp {
	return Stamp{karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey, np.Hash(), karpv1.NodePoolHashVersion}
}

// ClassStamp returns what the annotations of a node class, and of the claims that are created with it, should say. clusterCA is the certificate with
// which nodes verify the API server, which is part of the hash.
func ClassStamp(k *cloudprovider.NodeClassKind, nc status.Object, clusterCA string) Stamp {
	return Stamp{k.HashKey, k.HashVersionKey, k.Hash(nc, clusterCA), k.HashVersion}
}

// On reports whether an object's annotations contain the stamp.
func (s Stamp) On(annotations map[string]string) bool {
	return annotations[s.HashKey] == s.Hash && s.Current(annotations)
}

// Current reports whether an object's annotations have a hash of the stamp's version. Hashes of different versions can't be compared.
func (s Stamp) Current(annotations map[string]string) bool {
	return annotations[s.VersionKey] == s.Version
}

// Put writes the stamp to annotations.
func (s Stamp) Put(annotations map[string]string) {
	annotations[s.HashKey], annotations[s.VersionKey] = s.Hash, s.Version
}
