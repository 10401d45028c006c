package nodeclass

import (
	"maps"
	"slices"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// providerSettings holds the AWS settings of a Provisioner or of the AWSNodeTemplate it names.
type providerSettings struct {
	*legacy.AWS
	at *field.Path // path of the settings in their object

	// Only an AWSNodeTemplate has these.
	userData           *string
	amiSelector        map[string]string
	detailedMonitoring *bool
}

func inline(p *legacy.Provisioner) *providerSettings {
	return &providerSettings{AWS: &p.Spec.Provider.AWS, at: field.NewPath("spec", "provider")}
}

func ofTemplate(t *legacy.AWSNodeTemplate) *providerSettings {
	return &providerSettings{
		AWS: &t.Spec.AWS, at: field.NewPath("spec"),
		userData: t.Spec.UserData, amiSelector: t.Spec.AMISelector, detailedMonitoring: t.Spec.DetailedMonitoring,
	}
}

// familyAliases are the families whose images are published under an alias. AL2 is missing: it has no images for the supported
// Kubernetes versions.
var familyAliases = map[string]string{
	ec2nc.AMIFamilyAL2023:       "al2023@latest",
	ec2nc.AMIFamilyBottlerocket: "bottlerocket@latest",
	ec2nc.AMIFamilyWindows2019:  "windows2019@latest",
	ec2nc.AMIFamilyWindows2022:  "windows2022@latest",
}

// Legacy converts the AWS settings of Provisioners and AWSNodeTemplates.
type Legacy struct {
	// DefaultInstanceProfile is used where none is named.
	DefaultInstanceProfile string
}

// Validate returns an error for each invalid setting that a Provisioner has inline.
func (Legacy) Validate(p *legacy.Provisioner) field.ErrorList { return inline(p).validate() }

// ValidateTemplate returns an error for each invalid setting of an AWSNodeTemplate.
func (Legacy) ValidateTemplate(t *legacy.AWSNodeTemplate) field.ErrorList {
	return ofTemplate(t).validate()
}

// DefaultRequirements returns the requirements on instance types that Karpenter's webhook wrote into a Provisioner without any.
func (Legacy) DefaultRequirements(has map[string]bool) []corev1.NodeSelectorRequirement {
	if has[corev1.LabelInstanceTypeStable] || has[ec2nc.LabelInstanceFamily] || has[ec2nc.LabelInstanceCategory] || has[ec2nc.LabelInstanceGeneration] {
		return nil
	}
	return []corev1.NodeSelectorRequirement{
		{Key: ec2nc.LabelInstanceCategory, Operator: corev1.NodeSelectorOpIn, Values: []string{"c", "m", "r"}},
		{Key: ec2nc.LabelInstanceGeneration, Operator: corev1.NodeSelectorOpGt, Values: []string{"2"}},
	}
}

// ShowSelected writes to the status of an AWSNodeTemplate what its selectors have selected for a node class that was made from it.
func (Legacy) ShowSelected(t *legacy.AWSNodeTemplate, made status.Object) {
	nc := made.(*ec2nc.EC2NodeClass)
	t.Status.Subnets, t.Status.SecurityGroups, t.Status.AMIs = nil, nil, nil
	for _, s := range nc.Status.Subnets {
		t.Status.Subnets = append(t.Status.Subnets, legacy.Subnet{ID: s.ID, Zone: s.Zone})
	}
	for _, g := range nc.Status.SecurityGroups {
		t.Status.SecurityGroups = append(t.Status.SecurityGroups, legacy.SecurityGroup{ID: g.ID, Name: g.Name})
	}
	for _, a := range nc.Status.AMIs {
		t.Status.AMIs = append(t.Status.AMIs, legacy.AMI{ID: a.ID, Name: a.Name, Requirements: a.Requirements})
	}
}

// NodeClass returns the EC2NodeClass of a Provisioner, and the setting that has no effect. The settings must be valid. The class includes the Provisioner's kubelet
// settings, so every Provisioner has a class of its own.
//
//	amiFamily, amiSelector                      amiFamily, amiSelectorTerms; without either al2023@latest
//	subnetSelector, securityGroupSelector       terms, one for each combination of listed values
//	instanceProfile, context, userData, detailedMonitoring, blockDeviceMappings   as they are
//	metadataOptions                             as they are, with a hop limit of 2 where none is given
//	tags                                        with the name tags that such nodes had
//	launchTemplate                              objects.AnnotationLaunchTemplate
func (l Legacy) NodeClass(name string, p *legacy.Provisioner, t *legacy.AWSNodeTemplate) (class status.Object, unhonored string, errs field.ErrorList) {
	var s *providerSettings
	if p.Spec.Provider != nil {
		s = inline(p)
	} else {
		s = ofTemplate(t)
	}
	nc, errs := s.nodeClass(name, p, l.DefaultInstanceProfile)
	if len(errs) > 0 {
		return nil, "", errs
	}
	return nc, s.unhonored(), nil
}

func (s *providerSettings) nodeClass(name string, p *legacy.Provisioner, defaultProfile string) (*ec2nc.EC2NodeClass, field.ErrorList) {
	nc := &ec2nc.EC2NodeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: Kind.GroupVersion().String(), Kind: Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{objects.AnnotationOrigin: p.Name}},
		Spec: ec2nc.EC2NodeClassSpec{
			UserData: s.userData, Context: s.Context, DetailedMonitoring: s.detailedMonitoring,
			Tags:    s.tags(p.Name),
			Kubelet: kubeletOf(p.Spec.KubeletConfiguration),
		},
	}
	subnets, problem := combinations(s.SubnetSelector)
	if problem != nil { // can't happen: validate has accepted it
		return nil, field.ErrorList{field.InternalError(s.at.Child("subnetSelector"), problem)}
	}
	for _, c := range subnets {
		nc.Spec.SubnetSelectorTerms = append(nc.Spec.SubnetSelectorTerms, ec2nc.SubnetSelectorTerm{ID: c.id, Tags: c.tags})
	}
	if template := ptr.Deref(s.LaunchTemplate, ""); template != "" {
		nc.Annotations[objects.AnnotationLaunchTemplate] = template
		return nc, nil
	}
	groups, problem := combinations(s.SecurityGroupSelector)
	if problem != nil {
		return nil, field.ErrorList{field.InternalError(s.at.Child("securityGroupSelector"), problem)}
	}
	for _, c := range groups {
		nc.Spec.SecurityGroupSelectorTerms = append(nc.Spec.SecurityGroupSelectorTerms, ec2nc.SecurityGroupSelectorTerm{ID: c.id, Tags: c.tags})
	}
	if nc.Spec.AMISelectorTerms, problem = s.images(); problem != nil {
		return nil, field.ErrorList{field.InternalError(s.at.Child("amiSelector"), problem)}
	}
	nc.Spec.AMIFamily = ptr.To(s.family())
	nc.Spec.InstanceProfile = s.InstanceProfile
	if ptr.Deref(s.InstanceProfile, "") == "" {
		if defaultProfile == "" {
			return nil, field.ErrorList{field.Required(s.at.Child("instanceProfile"), "there is no default one either (defaultInstanceProfile)")}
		}
		nc.Spec.InstanceProfile = ptr.To(defaultProfile)
	}
	nc.Spec.MetadataOptions = metadataOf(s.MetadataOptions)
	for _, m := range s.BlockDeviceMappings {
		if e := m.EBS; e != nil {
			nc.Spec.BlockDeviceMappings = append(nc.Spec.BlockDeviceMappings, &ec2nc.BlockDeviceMapping{DeviceName: m.DeviceName, EBS: &ec2nc.BlockDevice{
				DeleteOnTermination: e.DeleteOnTermination, Encrypted: e.Encrypted, IOPS: e.IOPS, KMSKeyID: e.KMSKeyID, SnapshotID: e.SnapshotID,
				Throughput: e.Throughput, VolumeSize: e.VolumeSize, VolumeType: e.VolumeType,
			}})
		}
	}
	return nc.DeepCopy(), nil
}

// family returns the image family. The default is AL2023, the successor of the family that was the default of these APIs.
func (s *providerSettings) family() string {
	if f := ptr.Deref(s.AMIFamily, ""); f != "" {
		return f
	}
	return ec2nc.AMIFamilyAL2023
}

// Selector keys that aren't tags.
const (
	keyName   = "aws::name"
	keyOwners = "aws::owners"
)

var keyIDs = []string{"aws::ids", "aws-ids"}

// images returns the terms of the amiSelector, or the family's alias.
func (s *providerSettings) images() ([]ec2nc.AMISelectorTerm, error) {
	if len(s.amiSelector) == 0 {
		return []ec2nc.AMISelectorTerm{{Alias: familyAliases[s.family()]}}, nil
	}
	all, err := combinations(s.amiSelector)
	if err != nil {
		return nil, err
	}
	var out []ec2nc.AMISelectorTerm
	for _, c := range all {
		t := ec2nc.AMISelectorTerm{ID: c.id, Name: c.tags[keyName], Owner: c.tags[keyOwners], Tags: c.tags}
		delete(t.Tags, keyName)
		delete(t.Tags, keyOwners)
		if len(t.Tags) == 0 {
			t.Tags = nil
		}
		out = append(out, t)
	}
	return out, nil
}

// tags returns the user's tags and those that Karpenter put on nodes of a Provisioner. The cluster's own tag is left out, since it is
// set on everything anyway.
func (s *providerSettings) tags(provisioner string) map[string]string {
	out := map[string]string{ec2nc.NameTagKey: legacy.ProvisionerNameLabel + "/" + provisioner}
	maps.Copy(out, s.Tags)
	maps.DeleteFunc(out, clusterTag)
	out[legacy.ProvisionerNameLabel] = provisioner
	return out
}

func clusterTag(key, value string) bool {
	return strings.HasPrefix(key, "kubernetes.io/cluster/") && value == "owned"
}

// metadataOf fills in the defaults of these older APIs, which differ from today's in the hop limit.
func metadataOf(m *legacy.MetadataOptions) *ec2nc.MetadataOptions {
	if m == nil {
		m = &legacy.MetadataOptions{}
	}
	or := func(v *string, def string) *string { return ptr.To(ptr.Deref(v, def)) }
	return &ec2nc.MetadataOptions{
		HTTPEndpoint: or(m.HTTPEndpoint, "enabled"), HTTPProtocolIPv6: or(m.HTTPProtocolIPv6, "disabled"), HTTPTokens: or(m.HTTPTokens, "required"),
		HTTPPutResponseHopLimit: ptr.To(ptr.Deref(m.HTTPPutResponseHopLimit, 2)),
	}
}

func kubeletOf(k *legacy.KubeletConfiguration) *ec2nc.KubeletConfiguration {
	if k == nil {
		return nil
	}
	return &ec2nc.KubeletConfiguration{
		ClusterDNS: k.ClusterDNS, MaxPods: k.MaxPods, PodsPerCore: k.PodsPerCore,
		SystemReserved: texts(k.SystemReserved), KubeReserved: texts(k.KubeReserved),
		EvictionHard: k.EvictionHard, EvictionSoft: k.EvictionSoft, EvictionSoftGracePeriod: k.EvictionSoftGracePeriod,
		EvictionMaxPodGracePeriod: k.EvictionMaxPodGracePeriod, ImageGCHighThresholdPercent: k.ImageGCHighThresholdPercent,
		ImageGCLowThresholdPercent: k.ImageGCLowThresholdPercent, CPUCFSQuota: k.CPUCFSQuota,
	}
}

func texts(list corev1.ResourceList) map[string]string {
	if list == nil {
		return nil
	}
	out := make(map[string]string, len(list))
	for name, q := range list {
		out[string(name)] = q.String()
	}
	return out
}

// combination is one way to satisfy a selector: an id, or tags.
type combination struct {
	id   string
	tags map[string]string
}

// combinations expands a selector's lists of values. All tags of a selector must match, each with one of its values; today's terms
// have no lists, but there may be several terms, up to a limit. Ids can't be combined with tags.
func combinations(selector map[string]string) ([]combination, error) {
	var ids []string
	tags := []map[string]string{{}}
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		values, err := listed(selector[key])
		if err != nil {
			return nil, err
		}
		if slices.Contains(keyIDs, key) {
			ids = append(ids, values...)
			continue
		}
		var next []map[string]string
		for _, t := range tags {
			for _, v := range values {
				t := maps.Clone(t)
				t[key] = v
				next = append(next, t)
			}
		}
		if tags = next; len(tags) > maxTerms {
			return nil, errTooMany
		}
	}
	var out []combination
	for _, id := range ids {
		out = append(out, combination{id: id})
	}
	if len(tags[0]) > 0 {
		if len(ids) > 0 {
			return nil, errIDsAndTags
		}
		for _, t := range tags {
			out = append(out, combination{tags: t})
		}
	}
	if len(out) > maxTerms {
		return nil, errTooMany
	}
	return out, nil
}

func listed(value string) ([]string, error) {
	var out []string
	for v := range strings.SplitSeq(value, ",") {
		if v = strings.TrimSpace(v); v == "" {
			return nil, errEmptyValue
		} else if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out, nil
}
