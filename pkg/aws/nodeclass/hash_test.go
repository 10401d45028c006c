package nodeclass

import (
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

func testClass(change ...func(*ec2nc.EC2NodeClass)) *ec2nc.EC2NodeClass {
	nc := &ec2nc.EC2NodeClass{Spec: ec2nc.EC2NodeClassSpec{
		SubnetSelectorTerms:        []ec2nc.SubnetSelectorTerm{{ID: "subnet-1"}},
		SecurityGroupSelectorTerms: []ec2nc.SecurityGroupSelectorTerm{{ID: "sg-1"}},
		AMISelectorTerms:           []ec2nc.AMISelectorTerm{{Alias: "al2023@latest"}},
		InstanceProfile:            ptr.To("profile"),
	}}
	for _, f := range change {
		f(nc)
	}
	return nc
}

// The hash of a release must not change without HashVersion: otherwise every node would drift.
func TestHashOfThisVersion(t *testing.T) {
	if got, want := cloudprovider.HashVersion+" "+Kind.Hash(testClass(), "ca"), "dovetail-v1 16238807408676622715"; got != want {
		t.Errorf("class: %s, want %s", got, want)
	}
}

func TestHash(t *testing.T) {
	base := func() *ec2nc.EC2NodeClass {
		return testClass(func(nc *ec2nc.EC2NodeClass) {
			nc.Spec.Tags = map[string]string{"team": "a"}
			nc.Spec.Kubelet = &ec2nc.KubeletConfiguration{MaxPods: ptr.To[int32](50)}
			nc.Spec.BlockDeviceMappings = []*ec2nc.BlockDeviceMapping{
				{DeviceName: ptr.To("/dev/xvda"), EBS: &ec2nc.BlockDevice{VolumeSize: ptr.To(resource.MustParse("20Gi"))}},
				{DeviceName: ptr.To("/dev/xvdb"), EBS: &ec2nc.BlockDevice{VolumeSize: ptr.To(resource.MustParse("30Gi"))}},
			}
		})
	}
	for name, tc := range map[string]struct {
		change func(*ec2nc.EC2NodeClassSpec)
		ca     string
		counts bool
	}{
		"user data":   {func(s *ec2nc.EC2NodeClassSpec) { s.UserData = ptr.To("#!/bin/sh") }, "ca", true},
		"a tag":       {func(s *ec2nc.EC2NodeClassSpec) { s.Tags["team"] = "b" }, "ca", true},
		"the profile": {func(s *ec2nc.EC2NodeClassSpec) { s.InstanceProfile = ptr.To("other") }, "ca", true},
		"kubelet":     {func(s *ec2nc.EC2NodeClassSpec) { s.Kubelet.MaxPods = ptr.To[int32](51) }, "ca", true},
		"a volume's size": {func(s *ec2nc.EC2NodeClassSpec) {
			s.BlockDeviceMappings[0].EBS.VolumeSize = ptr.To(resource.MustParse("21Gi"))
		}, "ca", true},
		"a volume's size, other words": {func(s *ec2nc.EC2NodeClassSpec) {
			s.BlockDeviceMappings[0].EBS.VolumeSize = ptr.To(resource.MustParse("20480Mi"))
		}, "ca", false},
		"the order of volumes": {func(s *ec2nc.EC2NodeClassSpec) {
			s.BlockDeviceMappings[0], s.BlockDeviceMappings[1] = s.BlockDeviceMappings[1], s.BlockDeviceMappings[0]
		}, "ca", false},
		"a public address refused":      {func(s *ec2nc.EC2NodeClassSpec) { s.AssociatePublicIPAddress = ptr.To(false) }, "ca", true},
		"the cluster's certificates":    {func(*ec2nc.EC2NodeClassSpec) {}, "another ca", true},
		"the family, as the alias says": {func(s *ec2nc.EC2NodeClassSpec) { s.AMIFamily = ptr.To("AL2023") }, "ca", false},
		"another release of the family": {func(s *ec2nc.EC2NodeClassSpec) { s.AMISelectorTerms[0].Alias = "al2023@v20260101" }, "ca", false},
		"another family":                {func(s *ec2nc.EC2NodeClassSpec) { s.AMISelectorTerms[0].Alias = "bottlerocket@latest" }, "ca", true},
		"subnets":                       {func(s *ec2nc.EC2NodeClassSpec) { s.SubnetSelectorTerms[0].ID = "subnet-2" }, "ca", false},
		"security groups":               {func(s *ec2nc.EC2NodeClassSpec) { s.SecurityGroupSelectorTerms[0].ID = "sg-2" }, "ca", false},
		"capacity reservations": {func(s *ec2nc.EC2NodeClassSpec) {
			s.CapacityReservationSelectorTerms = []ec2nc.CapacityReservationSelectorTerm{{ID: "cr-1"}}
		}, "ca", false},
		"the number of address prefixes": {func(s *ec2nc.EC2NodeClassSpec) { s.IPPrefixCount = ptr.To[int32](2) }, "ca", false},
		"a placement group": {func(s *ec2nc.EC2NodeClassSpec) {
			s.PlacementGroupSelector = &ec2nc.PlacementGroupSelector{Name: ptr.To("g")}
		}, "ca", true},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := base(), base()
			tc.change(&after.Spec)
			if got := Kind.Hash(before, "ca") != Kind.Hash(after, tc.ca); got != tc.counts {
				t.Errorf("changes the hash: %v, want %v", got, tc.counts)
			}
			if theirs := before.Hash(ptr.To("ca")) != after.Hash(&tc.ca); theirs != tc.counts {
				t.Errorf("changes Karpenter's hash: %v, want %v", theirs, tc.counts)
			}
		})
	}
	custom := base()
	custom.Spec.AMIFamily = ptr.To("Custom")
	if Kind.Hash(custom, "ca") != Kind.Hash(custom, "another ca") {
		t.Error("user data of family Custom is the user's own, and the cluster's certificates are not in it")
	}
}
