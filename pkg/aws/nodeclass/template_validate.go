package nodeclass

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

// maxTerms is the CRD's limit on selector terms.
const maxTerms = 30

var (
	errTooMany    = fmt.Errorf("its lists combine to more than %d selectors", maxTerms)
	errIDsAndTags = errors.New("ids can't be combined with other keys")
	errEmptyValue = errors.New("values must not be empty")
)

var (
	volumeTypes  = sets.New("standard", "io1", "io2", "gp2", "gp3", "sc1", "st1")
	onOff        = sets.New("enabled", "disabled")
	tokens       = sets.New("required", "optional")
	smallestDisk = resource.MustParse("1G")
	largestDisk  = resource.MustParse("64T")

	subnetID = regexp.MustCompile(`^subnet-[0-9a-z]+$`)
	groupID  = regexp.MustCompile(`^sg-[0-9a-z]+$`)
	imageID  = regexp.MustCompile(`^ami-[0-9a-z]+$`)
)

// validate returns an error for each invalid setting, with its path.
func (s *providerSettings) validate() field.ErrorList {
	errs := validateSelector(s.SubnetSelector, subnetID, s.at.Child("subnetSelector"))
	if len(s.SubnetSelector) == 0 {
		errs = append(errs, field.Required(s.at.Child("subnetSelector"), "selects the subnets to launch in"))
	}
	errs = append(errs, s.validateTags()...)
	if ptr.Deref(s.LaunchTemplate, "") != "" {
		return append(errs, s.onlyTemplate()...)
	}
	if len(s.SecurityGroupSelector) == 0 {
		errs = append(errs, field.Required(s.at.Child("securityGroupSelector"), "there is no launchTemplate either"))
	}
	errs = append(errs, validateSelector(s.SecurityGroupSelector, groupID, s.at.Child("securityGroupSelector"))...)
	errs = append(errs, s.validateImages()...)
	if m := s.MetadataOptions; m != nil {
		errs = append(errs, validateMetadata(m, s.at.Child("metadataOptions"))...)
	}
	for i := range s.BlockDeviceMappings {
		errs = append(errs, validateDevice(&s.BlockDeviceMappings[i], s.at.Child("blockDeviceMappings").Index(i))...)
	}
	return errs
}

// onlyTemplate refuses settings that a launch template contains itself.
func (s *providerSettings) onlyTemplate() (errs field.ErrorList) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"securityGroupSelector", len(s.SecurityGroupSelector) > 0}, {"metadataOptions", s.MetadataOptions != nil},
		{"amiFamily", ptr.Deref(s.AMIFamily, "") != ""}, {"instanceProfile", ptr.Deref(s.InstanceProfile, "") != ""},
		{"blockDeviceMappings", len(s.BlockDeviceMappings) > 0}, {"userData", s.userData != nil}, {"amiSelector", len(s.amiSelector) > 0},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(s.at.Child(f.name), "it and launchTemplate exclude each other"))
		}
	}
	return errs
}

func (s *providerSettings) validateTags() (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(s.Tags)) {
		restricted := slices.ContainsFunc(ec2nc.RestrictedTagPatterns, func(r *regexp.Regexp) bool { return r.MatchString(key) })
		switch at := s.at.Child("tags").Key(key); {
		case key == "":
			errs = append(errs, field.Invalid(at, key, "keys must not be empty"))
		case restricted && !clusterTag(key, s.Tags[key]), key == legacy.ProvisionerNameLabel:
			errs = append(errs, field.Forbidden(at, "the tag is set by the program itself"))
		}
	}
	return errs
}

func (s *providerSettings) validateImages() (errs field.ErrorList) {
	at := s.at.Child("amiFamily")
	switch f := s.family(); {
	case f == ec2nc.AMIFamilyAL2:
		errs = append(errs, field.Invalid(at, f, "AL2 has no images for Kubernetes 1.33 and newer; use AL2023 or Bottlerocket"))
	case f == ec2nc.AMIFamilyCustom:
		if len(s.amiSelector) == 0 {
			errs = append(errs, field.Required(s.at.Child("amiSelector"), "the family Custom has no images of its own"))
		}
	case familyAliases[f] == "":
		errs = append(errs, field.NotSupported(at, f, append(slices.Sorted(maps.Keys(familyAliases)), ec2nc.AMIFamilyCustom)))
	}
	if len(s.amiSelector) == 1 && s.amiSelector[keyOwners] != "" {
		errs = append(errs, field.Invalid(s.at.Child("amiSelector"), sayTags(s.amiSelector), "selects every image of an owner: name or tags are required"))
	}
	return append(errs, validateSelector(s.amiSelector, imageID, s.at.Child("amiSelector"))...)
}

// validateSelector checks keys and values; ids must match the pattern id.
func validateSelector(selector map[string]string, id *regexp.Regexp, at *field.Path) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		value, at := selector[key], at.Key(key)
		values, err := listed(value)
		switch {
		case key == "":
			errs = append(errs, field.Invalid(at, key, "keys must not be empty"))
		case err != nil:
			errs = append(errs, field.Invalid(at, value, err.Error()))
		case slices.Contains(keyIDs, key):
			for _, v := range values {
				if !id.MatchString(v) {
					errs = append(errs, field.Invalid(at, v, "must have the form "+strings.Trim(id.String(), "^$")))
				}
			}
		}
	}
	if _, err := combinations(selector); err != nil && len(errs) == 0 {
		errs = append(errs, field.Invalid(at, sayTags(selector), err.Error()))
	}
	return errs
}

func sayTags(tags map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, key+": "+tags[key])
	}
	return strings.Join(parts, "; ")
}

func validateMetadata(m *legacy.MetadataOptions, at *field.Path) (errs field.ErrorList) {
	one := func(name string, v *string, of sets.Set[string]) {
		if v != nil && !of.Has(*v) {
			errs = append(errs, field.NotSupported(at.Child(name), *v, sets.List(of)))
		}
	}
	one("httpEndpoint", m.HTTPEndpoint, onOff)
	one("httpProtocolIPv6", m.HTTPProtocolIPv6, onOff)
	one("httpTokens", m.HTTPTokens, tokens)
	if n := m.HTTPPutResponseHopLimit; n != nil && (*n < 1 || *n > 64) {
		errs = append(errs, field.Invalid(at.Child("httpPutResponseHopLimit"), *n, "must be between 1 and 64"))
	}
	return errs
}

func validateDevice(m *legacy.BlockDeviceMapping, at *field.Path) (errs field.ErrorList) {
	if ptr.Deref(m.DeviceName, "") == "" {
		errs = append(errs, field.Required(at.Child("deviceName"), ""))
	}
	e, virtual := m.EBS, ptr.Deref(m.VirtualName, "") != ""
	at = at.Child("ebs")
	switch {
	case e == nil && virtual:
		return errs // an instance store volume, which EC2 maps by itself
	case e == nil:
		return append(errs, field.Required(at, "describes the volume"))
	case e.VolumeSize == nil && e.SnapshotID == nil:
		errs = append(errs, field.Required(at.Child("volumeSize"), "there is no snapshotID either"))
	case e.VolumeSize != nil && (e.VolumeSize.Cmp(smallestDisk) < 0 || e.VolumeSize.Cmp(largestDisk) > 0):
		errs = append(errs, field.Invalid(at.Child("volumeSize"), e.VolumeSize.String(), "must be between 1G and 64T"))
	}
	if e.VolumeType != nil && !volumeTypes.Has(*e.VolumeType) {
		errs = append(errs, field.NotSupported(at.Child("volumeType"), *e.VolumeType, sets.List(volumeTypes)))
	}
	for name, v := range map[string]*int64{"iops": e.IOPS, "throughput": e.Throughput} {
		if v != nil && *v < 0 {
			errs = append(errs, field.Invalid(at.Child(name), *v, "must not be negative"))
		}
	}
	return errs
}

// unhonored names the setting that has no effect, and why that does no harm; empty when all have an effect.
func (s *providerSettings) unhonored() string {
	for i, m := range s.BlockDeviceMappings {
		if ptr.Deref(m.VirtualName, "") != "" {
			return s.at.Child("blockDeviceMappings").Index(i).Child("virtualName").String() + " (EC2 maps instance store volumes by itself)"
		}
	}
	return ""
}
