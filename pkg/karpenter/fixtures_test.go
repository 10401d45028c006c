package karpenter

import (
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/test/fixtures"
)

// The definitions and the kind of node class that the tests' objects are of.
var (
	shipped   = NewDefinitions(nodeclass.CRDs())
	classKind = nodeclass.Kind.GroupKind()
	kinds     = []CustomKind{NodePools, NodeClaims, NodeOverlays, NodeClasses(nodeclass.Kind), Provisioners, NodeTemplates}
)

// What tests begin with.
var (
	start, testInstance          = fixtures.Start, fixtures.Instance
	testPool, testClaim          = fixtures.Pool, fixtures.Claim
	fromYAML, same               = fixtures.FromYAML, fixtures.Same
	testOverlay, price, adjusted = fixtures.Overlay, fixtures.Price, fixtures.Adjusted
	twoTypes, offered, byHand    = fixtures.TwoTypes, fixtures.Offered, fixtures.ByHand
)

const (
	inline  = fixtures.Inline
	byRef   = fixtures.ByRef
	settled = fixtures.Settled

	inlineClass, inlinePool = fixtures.InlineClass, fixtures.InlinePool
)

// fromProvisioner is FromProvisioner on AWS.
func fromProvisioner(p *legacy.Provisioner, t *legacy.AWSNodeTemplate, cloud nodeclass.Legacy) (*karpv1.NodePool, *ec2nc.EC2NodeClass, field.ErrorList) {
	np, nc, errs := FromProvisioner(p, t, cloud)
	if nc == nil {
		return np, nil, errs
	}
	return np, nc.(*ec2nc.EC2NodeClass), errs
}
