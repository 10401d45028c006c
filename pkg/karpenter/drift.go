package karpenter

import (
	"maps"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// PoolDrift returns why a claim is not what its pool would launch now, as far as the pool alone tells; "": it is. The hash is compared first,
// as in Karpenter. If the requirements can't be read, they cause no drift: nothing is launched from such a pool.
func PoolDrift(np *karpv1.NodePool, nc *karpv1.NodeClaim) cloudprovider.DriftReason {
	if hashDiffers(np.Annotations, nc.Annotations, karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey) {
		return cloudprovider.NodePoolDrifted
	}
	requirements, err := poolRequirements(np.Spec.Template.Spec.Requirements, nil)
	if err == nil && !requirements.Match(normalLabels(nc.Labels)) {
		return cloudprovider.RequirementsDrifted
	}
	return ""
}

// ClassDrift reports whether a claim was made from another spec of its node class, whose annotations are given.
func ClassDrift(k *cloudprovider.NodeClassKind, class map[string]string, nc *karpv1.NodeClaim) bool {
	return hashDiffers(class, nc.Annotations, k.HashKey, k.HashVersionKey)
}

// hashDiffers compares the hashes of an object and a claim. It returns false if one is missing, or if their versions differ.
func hashDiffers(object, claim map[string]string, key, versionKey string) bool {
	for _, annotations := range []map[string]string{object, claim} {
		for _, k := range []string{key, versionKey} {
			if _, ok := annotations[k]; !ok {
				return false
			}
		}
	}
	return object[versionKey] == claim[versionKey] && object[key] != claim[key]
}

// normalLabels returns labels under their current keys. A label that has its current key already wins over one with an older key.
func normalLabels(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	for key, value := range labels {
		if normal := capacity.NormalLabel(key); normal != key && labels[normal] == "" {
			out[normal] = value
		}
	}
	return out
}
