package aws

import "github.com/aws/amazon-vpc-resource-controller-k8s/pkg/aws/vpc"

// branchInterfaces is how many pods with security groups of their own a machine of the type can run: each has a branch
// interface. No API tells it. The table is that of the controller which announces the resource on nodes, so that a type this
// release does not know has none there either.
func branchInterfaces(instanceType string) int64 {
	if l := vpc.Limits[instanceType]; l != nil && l.IsTrunkingCompatible {
		return int64(l.BranchInterface)
	}
	return 0
}
