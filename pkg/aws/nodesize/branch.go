package nodesize

import "github.com/aws/amazon-vpc-resource-controller-k8s/pkg/aws/vpc"

// branchInterfaces returns how many pods with security groups of their own an instance of the type can run: each needs a branch
// interface. No API returns the number. The table is taken from the VPC resource controller, which announces the resource on nodes:
// for a type that this release does not know, the controller announces none either.
func branchInterfaces(instanceType string) int64 {
	if l := vpc.Limits[instanceType]; l != nil && l.IsTrunkingCompatible {
		return int64(l.BranchInterface)
	}
	return 0
}
