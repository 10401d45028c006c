package karpenter

import (
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// The hashes of a release must not change without HashVersion: otherwise every node would drift.
func TestHashesOfThisVersion(t *testing.T) {
	if got, want := HashVersion+" "+PoolHash(testPool("default")), "dovetail-v1 2791933545511719377"; got != want {
		t.Errorf("pool: %s, want %s", got, want)
	}
	if got, want := HashVersion+" "+ClassHash(testClass("default"), "ca"), "dovetail-v1 16238807408676622715"; got != want {
		t.Errorf("class: %s, want %s", got, want)
	}
}

// Karpenter defines which changes count: the same change must change its own hash, too. (Karpenter treats "Never" as a zero value,
// which makes no difference here.)
func TestPoolHash(t *testing.T) {
	base := func() *karpv1.NodePool {
		return testPool("default", func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.Taints = append(np.Spec.Template.Spec.Taints, corev1.Taint{Key: "other", Effect: "NoSchedule"})
		})
	}
	type change = func(*karpv1.NodePool, *karpv1.NodeClaimTemplate)
	for name, tc := range map[string]struct {
		change change
		counts bool
	}{
		"a label":         {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Labels["team"] = "b" }, true},
		"an annotation":   {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Annotations["new"] = "" }, true},
		"a taint":         {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Spec.Taints[0].Value = "b" }, true},
		"a startup taint": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Spec.StartupTaints = nil }, true},
		"the node class":  {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Spec.NodeClassRef.Name = "other" }, true},
		"expireAfter": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.ExpireAfter = karpv1.MustParseNillableDuration("1h")
		}, true},
		"expireAfter Never": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
		}, true},
		"expireAfter in other words": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.ExpireAfter = karpv1.MustParseNillableDuration("2880m")
		}, false},
		"terminationGracePeriod": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Minute}
		}, true},
		"the order of taints": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.Taints[0], t.Spec.Taints[1] = t.Spec.Taints[1], t.Spec.Taints[0]
		}, false},
		"requirements":  {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Spec.Requirements = nil }, false},
		"an empty list": {func(np *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { np.Spec.Disruption.Budgets = []karpv1.Budget{} }, false},
		"limits":        {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate) { np.Spec.Limits = nil }, false},
		"weight":        {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate) { np.Spec.Weight = nil }, false},
		"disruption":    {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate) { np.Spec.Disruption = karpv1.Disruption{} }, false},
		"the name":      {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate) { np.Name = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := base(), base()
			tc.change(after, &after.Spec.Template)
			if got := PoolHash(before) != PoolHash(after); got != tc.counts {
				t.Errorf("changes the hash: %v, want %v", got, tc.counts)
			}
			if theirs := before.Hash() != after.Hash(); theirs != tc.counts {
				t.Errorf("changes Karpenter's hash: %v, want %v", theirs, tc.counts)
			}
		})
	}
}

func TestClassHash(t *testing.T) {
	base := func() *ec2nc.EC2NodeClass {
		return testClass("default", func(nc *ec2nc.EC2NodeClass) {
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
			if got := ClassHash(before, "ca") != ClassHash(after, tc.ca); got != tc.counts {
				t.Errorf("changes the hash: %v, want %v", got, tc.counts)
			}
			if theirs := before.Hash(ptr.To("ca")) != after.Hash(&tc.ca); theirs != tc.counts {
				t.Errorf("changes Karpenter's hash: %v, want %v", theirs, tc.counts)
			}
		})
	}
	custom := base()
	custom.Spec.AMIFamily = ptr.To("Custom")
	if ClassHash(custom, "ca") != ClassHash(custom, "another ca") {
		t.Error("user data of family Custom is the user's own, and the cluster's certificates are not in it")
	}
}
