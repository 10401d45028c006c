package nodeclass

import (
	"fmt"
	"math/rand/v2"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
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

// With another version of Karpenter's module, the hash must not change without its version: otherwise every node would drift.
func TestHashOfThisVersion(t *testing.T) {
	if got, want := Kind.HashVersion+" "+Kind.Hash(testClass(), "ca"), "v5 2067856066237000480"; got != want {
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
		})
	}
}

// Karpenter's own function decides, for classes of every family.
func TestHashIsKarpenters(t *testing.T) {
	families := []*string{nil, ptr.To("AL2023"), ptr.To("Bottlerocket"), ptr.To("Custom"), ptr.To("Windows2022")}
	for seed := range uint64(500) {
		d := rand.New(rand.NewPCG(seed, 1))
		nc := testClass(func(nc *ec2nc.EC2NodeClass) {
			s := &nc.Spec
			s.AMIFamily = families[d.IntN(len(families))]
			if d.IntN(2) == 0 {
				s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{ID: fmt.Sprint("ami-", d.IntN(3))}}
			}
			for i := range d.IntN(3) {
				s.BlockDeviceMappings = append(s.BlockDeviceMappings, &ec2nc.BlockDeviceMapping{DeviceName: ptr.To(fmt.Sprint("/dev/", i)),
					EBS: &ec2nc.BlockDevice{VolumeSize: ptr.To(*resource.NewQuantity(d.Int64N(100)<<30, resource.BinarySI)), Encrypted: ptr.To(d.IntN(2) == 0)}})
			}
			if d.IntN(2) == 0 {
				s.Tags, s.UserData = map[string]string{"team": fmt.Sprint(d.IntN(3))}, ptr.To(fmt.Sprint(d.IntN(3)))
			}
			if d.IntN(2) == 0 {
				s.Kubelet = &ec2nc.KubeletConfiguration{MaxPods: ptr.To(d.Int32N(100)), SystemReserved: map[string]string{"cpu": fmt.Sprint(d.IntN(3))}}
			}
			if d.IntN(2) == 0 {
				s.MetadataOptions = &ec2nc.MetadataOptions{HTTPPutResponseHopLimit: ptr.To(d.Int64N(3)), HTTPTokens: ptr.To("required")}
			}
		})
		ca := fmt.Sprint("ca ", d.IntN(2))
		if got, want := Kind.Hash(nc, ca), nc.Hash(&ca); got != want {
			t.Fatalf("seed %d: %s, Karpenter has %s", seed, got, want)
		}
	}
}
