package nodeclass

import (
	"github.com/aws/karpenter-provider-aws/pkg/apis"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// CRDs returns the definitions of NodePool, NodeClaim, NodeOverlay and EC2NodeClass, as the AWS provider's module ships them: its
// NodePool and NodeClaim differ from the core module's in that they know the karpenter.k8s.aws labels. The caller owns the copies.
func CRDs() []*apiextensionsv1.CustomResourceDefinition {
	out := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(apis.CRDs))
	for _, crd := range apis.CRDs {
		out = append(out, crd.DeepCopy())
	}
	return out
}
