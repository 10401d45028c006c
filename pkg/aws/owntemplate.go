package aws

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/lookup"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/validation"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// ownTemplate returns the launch template that a class without a selection of images names; empty: it names none. Instances are launched with the
// latest version of the template as it is: it determines image, user data, instance profile, security groups and volumes. The class determines the
// subnets, the tags, and how large nodes are assumed to be. Such classes are derived from a legacy Provisioner.
func ownTemplate(nc *ec2nc.EC2NodeClass) string {
	if len(nc.Spec.AMISelectorTerms) > 0 {
		return ""
	}
	return nc.Annotations[objects.AnnotationLaunchTemplate]
}

// templateVersion is a version of a launch template that the user maintains.
type templateVersion struct {
	name, version string
	// rootBytes is the size of its smallest volume; 0: the image determines it. The template doesn't tell which volume holds the
	// kubelet's files.
	rootBytes int64
}

// settingsOfOwn returns the settings for computing the size of nodes of a class that names a launch template; the error is why the
// class is invalid.
func settingsOfOwn(nc *ec2nc.EC2NodeClass, cfg nodesize.Config, owner ownership.Owner) (*bootstrap.Family, *nodesize.Settings, error) {
	f := bootstrap.Custom
	if err := validation.Own(nc, f, owner); err != nil {
		return f, nil, err
	}
	s, err := nodesize.SettingsOf(&nc.Spec, f, cfg)
	return f, s, err
}

// ofTemplate returns the images of the latest version of the class's launch template, each with the version.
func (l *images) ofTemplate(ctx context.Context, name string, now time.Time) ([]image, error) {
	out, err := l.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateName: &name, Versions: []string{"$Latest"}, ResolveAlias: awssdk.Bool(true),
	})
	switch {
	case sdk.IsNotFound(err):
		return nil, lookup.Unusablef("no launch template is called %s", name)
	case err != nil:
		return nil, fmt.Errorf("describing launch template %s: %w", name, err)
	case len(out.LaunchTemplateVersions) == 0 || out.LaunchTemplateVersions[0].LaunchTemplateData == nil:
		return nil, lookup.Unusablef("launch template %s has no versions", name)
	}
	v := &out.LaunchTemplateVersions[0]
	id := awssdk.ToString(v.LaunchTemplateData.ImageId)
	if id == "" {
		return nil, lookup.Unusablef("launch template %s names no image", name)
	}
	found, err := l.find(ctx, &ec2nc.EC2NodeClassSpec{AMISelectorTerms: []ec2nc.AMISelectorTerm{{ID: id}}}, now)
	var none lookup.Unusable
	if errors.As(err, &none) {
		return nil, lookup.Unusablef("launch template %s: image %s is none of a supported architecture", name, id)
	}
	own := templateVersion{name: name, version: strconv.FormatInt(awssdk.ToInt64(v.VersionNumber), 10)}
	for _, m := range v.LaunchTemplateData.BlockDeviceMappings {
		if m.Ebs != nil && m.Ebs.VolumeSize != nil {
			if size := int64(*m.Ebs.VolumeSize) << 30; own.rootBytes == 0 || size < own.rootBytes {
				own.rootBytes = size
			}
		}
	}
	for i := range found {
		found[i].own = own
	}
	return found, err
}

// sizedByOwn sets the volume size from the launch template.
func (r *resolution) sizedByOwn() {
	if len(r.images.Value) == 0 || r.images.Value[0].own.rootBytes == 0 {
		return
	}
	r.settings = r.settings.WithRootVolume(r.images.Value[0].own.rootBytes)
}

// specification returns the version as a fleet request names it.
func (v templateVersion) specification() *ec2types.FleetLaunchTemplateSpecificationRequest {
	return &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: awssdk.String(v.name), Version: awssdk.String(v.version)}
}
