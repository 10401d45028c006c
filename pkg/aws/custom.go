package aws

import ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

// custom is the family of images that, with the class's user data, know how to join.
var custom = &family{
	name: ec2nc.AMIFamilyCustom, eniMemory: true, podsPerCore: true,
	userData: func(_ *ec2nc.EC2NodeClassSpec, _ *joined, _ boot, own string) (string, error) { return own, nil },
	nodeName: func(string) nameForm { return nameUnknown },
	unused: func(spec *ec2nc.EC2NodeClassSpec) (out []string) {
		if spec.Kubelet != nil {
			out = append(out, "spec.kubelet: used for planning, but spec.userData determines what the kubelet gets")
		}
		if spec.InstanceStorePolicy != nil {
			out = append(out, "spec.instanceStorePolicy: used for planning, but spec.userData sets up the disks")
		}
		return out
	},
}
