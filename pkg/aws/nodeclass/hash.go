package nodeclass

import (
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// hash changes when nodes of the class would come out different in a way that only a new node can have. It leaves out the selectors,
// because drift compares what they select, and the number of address prefixes, which doesn't concern running nodes. The AMI family
// counts by its effective value, whether it is named or follows from the alias. clusterCA is the certificate with which nodes verify the
// API server; it doesn't count for family Custom, whose user data is not ours.
func hash(o status.Object, clusterCA string) string {
	spec := o.(*ec2nc.EC2NodeClass).Spec.DeepCopy()
	family := amiFamily(spec)
	spec.SubnetSelectorTerms, spec.SecurityGroupSelectorTerms, spec.CapacityReservationSelectorTerms, spec.AMISelectorTerms = nil, nil, nil, nil
	spec.IPPrefixCount, spec.AMIFamily = nil, nil
	if family == strings.ToLower(ec2nc.AMIFamilyCustom) {
		clusterCA = ""
	}
	return cloudprovider.Hash(map[string]any{"spec": spec, "family": family, "ca": clusterCA})
}

// amiFamily returns the family in lower case: the named one, or else that of the alias.
func amiFamily(spec *ec2nc.EC2NodeClassSpec) string {
	if spec.AMIFamily != nil {
		return strings.ToLower(*spec.AMIFamily)
	}
	for _, term := range spec.AMISelectorTerms {
		if family, _, ok := strings.Cut(term.Alias, "@"); ok {
			return strings.ToLower(family)
		}
	}
	return strings.ToLower(ec2nc.AMIFamilyCustom)
}
