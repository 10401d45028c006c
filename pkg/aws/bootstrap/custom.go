package bootstrap

import ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

// Custom is the family of images that, with the class's user data, know how to join.
var Custom = &Family{
	name: ec2nc.AMIFamilyCustom, ENIMemory: true, PodsPerCore: true,
	userData:   func(_ *ec2nc.EC2NodeClassSpec, _ *Cluster, _ Node, own string) (string, error) { return own, nil },
	nodeName:   func(string) NameForm { return NameUnknown },
	ownKubelet: ownCustom,
	Unused: func(spec *ec2nc.EC2NodeClassSpec) (out []string) {
		if spec.Kubelet != nil {
			out = append(out, "spec.kubelet: used for planning, but spec.userData determines what the kubelet gets")
		}
		if spec.InstanceStorePolicy != nil {
			out = append(out, "spec.instanceStorePolicy: used for planning, but spec.userData sets up the disks")
		}
		return out
	},
}
