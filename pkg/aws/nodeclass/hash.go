package nodeclass

import (
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
)

// hash is Karpenter's own, so that both agree on which nodes have drifted. It changes when nodes of the class would come out different in
// a way that only a new node can have. It leaves out the selectors, because drift compares what they select, and the number of address
// prefixes, which doesn't concern running nodes. The AMI family counts by its effective value, whether it is named or follows from the
// alias. clusterCA is the certificate with which nodes verify the API server.
func hash(o status.Object, clusterCA string) string {
	return o.(*ec2nc.EC2NodeClass).Hash(&clusterCA)
}
