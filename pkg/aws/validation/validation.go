package validation

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// userDataLimit is EC2's limit, in bytes before base64.
const userDataLimit = 16 << 10

// Class returns what is wrong with a class, naming the field. The API server refuses most of it, but classes may come from
// elsewhere or have passed an older version of the definition. What it launches is tagged as the owner's.
func Class(nc *ec2nc.EC2NodeClass, f *bootstrap.Family, o ownership.Owner) error {
	if err := bootstrap.ValidNodeName(nc); err != nil {
		return err
	}
	tags := func(*ec2nc.EC2NodeClassSpec, *bootstrap.Family) error { return validTags(nc, o) }
	for _, check := range []func(*ec2nc.EC2NodeClassSpec, *bootstrap.Family) error{
		validTerms, validIdentity, tags, validDevices, validInterfaces, validKubelet, validUserData,
	} {
		if err := check(&nc.Spec, f); err != nil {
			return err
		}
	}
	return nil
}

// Own is Class for a class whose instances are launched from a launch template of the user's.
func Own(nc *ec2nc.EC2NodeClass, f *bootstrap.Family, o ownership.Owner) error {
	if len(nc.Spec.SubnetSelectorTerms) == 0 {
		return errors.New("spec.subnetSelectorTerms: at least one term is required")
	}
	return cmp.Or(validTags(nc, o), validKubelet(&nc.Spec, f))
}

func validTerms(spec *ec2nc.EC2NodeClassSpec, _ *bootstrap.Family) error {
	switch {
	case len(spec.SubnetSelectorTerms) == 0:
		return errors.New("spec.subnetSelectorTerms: at least one term is required")
	case len(spec.SecurityGroupSelectorTerms) == 0:
		return errors.New("spec.securityGroupSelectorTerms: at least one term is required")
	case len(spec.AMISelectorTerms) == 0:
		return errors.New("spec.amiSelectorTerms: at least one term is required")
	}
	for i, t := range spec.SubnetSelectorTerms {
		if t.ID == "" && len(t.Tags) == 0 {
			return fmt.Errorf("spec.subnetSelectorTerms[%d]: id or tags is required", i)
		}
	}
	for i, t := range spec.SecurityGroupSelectorTerms {
		if t.ID == "" && t.Name == "" && len(t.Tags) == 0 {
			return fmt.Errorf("spec.securityGroupSelectorTerms[%d]: id, name or tags is required", i)
		}
	}
	for i, t := range spec.AMISelectorTerms {
		if t.Alias == "" && t.ID == "" && t.Name == "" && len(t.Tags) == 0 && t.SSMParameter == "" {
			return fmt.Errorf("spec.amiSelectorTerms[%d]: alias, id, name, tags or ssmParameter is required", i)
		}
	}
	return nil
}

func validIdentity(spec *ec2nc.EC2NodeClassSpec, _ *bootstrap.Family) error {
	if (spec.Role == "") == (awssdk.ToString(spec.InstanceProfile) == "") {
		return errors.New("spec.role, spec.instanceProfile: exactly one of them is required")
	}
	return nil
}

// EC2's limits for tags. Its documentation names 127 and 128, 255 and 256 characters: only what is refused for certain is refused
// here.
const (
	maxTags     = 50
	maxTagKey   = 128 // characters
	maxTagValue = 256
)

func validTags(nc *ec2nc.EC2NodeClass, o ownership.Owner) error {
	spec := &nc.Spec
	for _, k := range slices.Sorted(maps.Keys(spec.Tags)) {
		switch {
		case k == "":
			return errors.New("spec.tags: a key is empty")
		case k == objects.TagLaunchBatch || slices.Contains(objects.FormerNames(objects.TagLaunchBatch), k) ||
			slices.ContainsFunc(ec2nc.RestrictedTagPatterns, func(r *regexp.Regexp) bool { return r.MatchString(k) }):
			return fmt.Errorf("spec.tags: the key %q is set by the program itself", k)
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return fmt.Errorf("spec.tags: the key %q begins with aws:, which AWS reserves", k)
		case utf8.RuneCountInString(k) > maxTagKey:
			return fmt.Errorf("spec.tags: the key %q has %d characters; EC2 allows %d", k, utf8.RuneCountInString(k), maxTagKey)
		case utf8.RuneCountInString(spec.Tags[k]) > maxTagValue:
			return fmt.Errorf("spec.tags: the value of %q has %d characters; EC2 allows %d", k, utf8.RuneCountInString(spec.Tags[k]), maxTagValue)
		}
	}
	all := o.BatchTags(nc, "", "")
	maps.Copy(all, ownership.ClaimTags("", "its Node")) // of an instance whose Node exists; only the number of tags matters
	if n := len(spec.Tags); len(all) > maxTags {
		return fmt.Errorf("spec.tags: %d tags and the %d that Dovetail adds to every instance are %d; EC2 allows %d on an instance", n, len(all)-n, len(all), maxTags)
	}
	return nil
}

func validDevices(spec *ec2nc.EC2NodeClassSpec, _ *bootstrap.Family) error {
	roots := 0
	for i, m := range spec.BlockDeviceMappings {
		switch {
		case awssdk.ToString(m.DeviceName) == "":
			return fmt.Errorf("spec.blockDeviceMappings[%d].deviceName: required", i)
		case m.EBS == nil || m.EBS.VolumeSize == nil && m.EBS.SnapshotID == nil:
			return fmt.Errorf("spec.blockDeviceMappings[%d].ebs: volumeSize or snapshotID is required", i)
		case m.EBS.IOPS != nil && *m.EBS.IOPS < 0:
			return fmt.Errorf("spec.blockDeviceMappings[%d].ebs.iops: %d is negative", i, *m.EBS.IOPS)
		case m.EBS.Throughput != nil && *m.EBS.Throughput < 0:
			return fmt.Errorf("spec.blockDeviceMappings[%d].ebs.throughput: %d is negative", i, *m.EBS.Throughput)
		case m.RootVolume:
			roots++
		}
	}
	if roots > 1 {
		return errors.New("spec.blockDeviceMappings: more than one has rootVolume")
	}
	return nil
}

func validInterfaces(spec *ec2nc.EC2NodeClassSpec, _ *bootstrap.Family) error {
	if len(spec.NetworkInterfaces) == 0 {
		return nil
	}
	for _, n := range spec.NetworkInterfaces {
		if n.NetworkCardIndex == 0 && n.DeviceIndex == 0 && n.InterfaceType == ec2nc.InterfaceTypeInterface {
			return nil
		}
	}
	return errors.New("spec.networkInterfaces: the first, at card 0 and device 0, must be of type interface")
}

func validKubelet(spec *ec2nc.EC2NodeClassSpec, _ *bootstrap.Family) error {
	if spec.Kubelet == nil {
		return nil
	}
	for i, a := range spec.Kubelet.ClusterDNS {
		if _, err := netip.ParseAddr(a); err != nil {
			return fmt.Errorf("spec.kubelet.clusterDNS[%d]: %q is not an address", i, a)
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(spec.Kubelet.EvictionSoftGracePeriod)) {
		if d := spec.Kubelet.EvictionSoftGracePeriod[signal]; d.Duration < 0 {
			return fmt.Errorf("spec.kubelet.evictionSoftGracePeriod[%s]: %s is negative", signal, d.Duration)
		}
	}
	if s := spec.Kubelet.EvictionMaxPodGracePeriod; s != nil && *s < 0 {
		return fmt.Errorf("spec.kubelet.evictionMaxPodGracePeriod: %d is negative", *s)
	}
	return nil
}

// validUserData creates user data as a launch would, with empty join data.
func validUserData(spec *ec2nc.EC2NodeClassSpec, f *bootstrap.Family) error {
	data, err := f.UserData(spec, &bootstrap.Cluster{}, bootstrap.Node{Cluster: "c", MaxPods: 110, Labels: map[string]string{}, Taints: []corev1.Taint{bootstrap.Unregistered}})
	if err != nil {
		return fmt.Errorf("spec.userData: %w", err)
	}
	if len(data) > userDataLimit {
		return fmt.Errorf("spec.userData: %d bytes with what the node needs; EC2 allows %d", len(data), userDataLimit)
	}
	return nil
}

// Unused names the fields of a class that have no effect on its nodes, with the reason.
func Unused(spec *ec2nc.EC2NodeClassSpec, f *bootstrap.Family) string {
	var out []string
	if AddressedInterfaces(spec) > 1 && spec.AssociatePublicIPAddress != nil {
		out = append(out, "spec.associatePublicIPAddress: EC2 assigns none to instances with several network interfaces")
	}
	if f.Unused != nil {
		out = append(out, f.Unused(spec)...)
	}
	return strings.Join(out, "; ")
}

// AddressedInterfaces returns how many of the class's own interfaces have addresses.
func AddressedInterfaces(spec *ec2nc.EC2NodeClassSpec) int {
	n := 0
	for _, i := range spec.NetworkInterfaces {
		if i.InterfaceType != ec2nc.InterfaceTypeEFAOnly {
			n++
		}
	}
	return n
}
