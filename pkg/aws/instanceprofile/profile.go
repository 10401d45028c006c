package instanceprofile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/lookup"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Profiles looks up and creates the instance profiles of classes, and removes those that are no longer needed.
type Profiles struct {
	iam    sdk.IAM
	clock  clock.PassiveClock
	owner  ownership.Owner
	region string
	hold   func() error
}

// New returns the profiles of the owner in a region. hold returns why nothing may be changed now, or nil.
func New(api sdk.IAM, c clock.PassiveClock, o ownership.Owner, region string, hold func() error) *Profiles {
	return &Profiles{iam: api, clock: c, owner: o, region: region, hold: hold}
}

// Find returns the name of the class's instance profile: the given one, or one that we create and own for its role. While another controller
// leads it creates and changes nothing, and returns an error if that would be needed: the other one deletes profiles of this cluster that its
// classes don't name.
func (l *Profiles) Find(ctx context.Context, nc *ec2nc.EC2NodeClass) (string, error) {
	if given := awssdk.ToString(nc.Spec.InstanceProfile); given != "" {
		_, err := l.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &given})
		switch {
		case sdk.IsNotFound(err):
			return "", lookup.Unusablef("spec.instanceProfile: no instance profile is called %s", given)
		case sdk.IsUnauthorized(err):
			return given, nil // we may not look at it, but EC2 will know it
		case err != nil:
			return "", fmt.Errorf("getting instance profile %s: %w", given, err)
		}
		return given, nil
	}
	name := l.Name(nc)
	profile, err := l.ensure(ctx, nc, name)
	if err != nil {
		return "", err
	}
	// A role may be given with its path; profiles take only the name.
	role := nc.Spec.Role[strings.LastIndex(nc.Spec.Role, "/")+1:]
	for _, r := range profile.Roles {
		if awssdk.ToString(r.RoleName) == role {
			return name, nil
		}
	}
	if err := l.hold(); err != nil {
		return "", fmt.Errorf("instance profile %s has no role yet: %w", name, err)
	}
	_, err = l.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &role})
	switch {
	case sdk.IsNotFound(err):
		return "", lookup.Unusablef("spec.role: no role is called %s", role)
	case sdk.IsUnauthorized(err):
		return "", lookup.Unusablef("spec.role: not allowed to put role %s into an instance profile: %s", role, sdk.Summarize(err))
	case err != nil:
		return "", fmt.Errorf("adding role %s to instance profile %s: %w", role, name, err)
	}
	return name, nil
}

func (l *Profiles) ensure(ctx context.Context, nc *ec2nc.EC2NodeClass, name string) (*iamtypes.InstanceProfile, error) {
	got, err := l.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	if err == nil {
		return got.InstanceProfile, nil
	}
	if !sdk.IsNotFound(err) {
		return nil, fmt.Errorf("getting instance profile %s: %w", name, err)
	}
	if err := l.hold(); err != nil {
		return nil, fmt.Errorf("instance profile %s is not created yet: %w", name, err)
	}
	tags := l.owner.Tags(nc)
	tags[ec2nc.LabelNodeClass], tags[corev1.LabelTopologyRegion] = nc.Name, l.region
	in := &iam.CreateInstanceProfileInput{
		InstanceProfileName: &name,
		Path:                awssdk.String(l.path(string(nc.UID) + "/")),
	}
	for _, t := range sdk.SortedTags(tags) {
		in.Tags = append(in.Tags, iamtypes.Tag{Key: t.Key, Value: t.Value})
	}
	created, err := l.iam.CreateInstanceProfile(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("creating instance profile %s: %w", name, err)
	}
	return created.InstanceProfile, nil
}

// path returns the path of this cluster's profiles; rest is the part below it, for a class.
func (l *Profiles) path(rest string) string {
	return "/karpenter/" + l.region + "/" + l.owner.Cluster + "/" + rest
}

// Name returns the same name for the same class object and role. A changed role gets a new profile, so that running instances keep
// theirs.
func (l *Profiles) Name(nc *ec2nc.EC2NodeClass) string {
	sum := sha256.Sum256([]byte(l.region + "\x00" + nc.Name + "\x00" + string(nc.UID) + "\x00" + nc.Spec.Role))
	// 128 characters are allowed; a cluster's name has up to 100.
	return l.owner.Cluster + "_" + hex.EncodeToString(sum[:10])
}
