package aws

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
)

// findProfile returns the name of the class's instance profile: the given one, or one that we create and own for its role.
func (p *Provider) findProfile(ctx context.Context, nc *ec2nc.EC2NodeClass) (string, string, error) {
	if given := awssdk.ToString(nc.Spec.InstanceProfile); given != "" {
		_, err := p.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &given})
		switch {
		case IsNotFound(err):
			return "", fmt.Sprintf("spec.instanceProfile: no instance profile is called %s", given), nil
		case IsUnauthorized(err):
			return given, "", nil // we may not look at it, but EC2 will know it
		case err != nil:
			return "", "", fmt.Errorf("getting instance profile %s: %w", given, err)
		}
		return given, "", nil
	}
	name := profileName(p.cfg.ClusterName, p.cfg.Region, nc)
	profile, err := p.ensureProfile(ctx, nc, name)
	if err != nil {
		return "", "", err
	}
	// A role may be given with its path; profiles take only the name.
	role := nc.Spec.Role[strings.LastIndex(nc.Spec.Role, "/")+1:]
	for _, r := range profile.Roles {
		if awssdk.ToString(r.RoleName) == role {
			return name, "", nil
		}
	}
	_, err = p.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &role})
	switch {
	case IsNotFound(err):
		return "", fmt.Sprintf("spec.role: no role is called %s", role), nil
	case IsUnauthorized(err):
		return "", fmt.Sprintf("spec.role: not allowed to put role %s into an instance profile: %s", role, summarize(err)), nil
	case err != nil:
		return "", "", fmt.Errorf("adding role %s to instance profile %s: %w", role, name, err)
	}
	return name, "", nil
}

func (p *Provider) ensureProfile(ctx context.Context, nc *ec2nc.EC2NodeClass, name string) (*iamtypes.InstanceProfile, error) {
	got, err := p.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	if err == nil {
		return got.InstanceProfile, nil
	}
	if !IsNotFound(err) {
		return nil, fmt.Errorf("getting instance profile %s: %w", name, err)
	}
	tags := p.ownerTags(nc)
	tags[ec2nc.LabelNodeClass], tags[corev1.LabelTopologyRegion] = nc.Name, p.cfg.Region
	in := &iam.CreateInstanceProfileInput{
		InstanceProfileName: &name,
		Path:                awssdk.String(p.profilePath(string(nc.UID) + "/")),
	}
	for _, t := range sortedTags(tags) {
		in.Tags = append(in.Tags, iamtypes.Tag{Key: t.Key, Value: t.Value})
	}
	created, err := p.iam.CreateInstanceProfile(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("creating instance profile %s: %w", name, err)
	}
	return created.InstanceProfile, nil
}

// profilePath returns the path of this cluster's profiles; rest is the part below it, for a class.
func (p *Provider) profilePath(rest string) string {
	return "/karpenter/" + p.cfg.Region + "/" + p.cfg.ClusterName + "/" + rest
}

// profileName returns the same name for the same class object and role. A changed role gets a new profile, so that running instances
// keep theirs.
func profileName(cluster, region string, nc *ec2nc.EC2NodeClass) string {
	sum := sha256.Sum256([]byte(region + "\x00" + nc.Name + "\x00" + string(nc.UID) + "\x00" + nc.Spec.Role))
	// 128 characters are allowed; a cluster's name has up to 100.
	return cluster + "_" + hex.EncodeToString(sum[:10])
}
