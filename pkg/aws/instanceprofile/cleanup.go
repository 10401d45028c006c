package instanceprofile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// RemoveUnused deletes instance profiles that were created for classes of this cluster and that neither a class nor an instance uses
// now. needed are the names of those that classes use, so all classes must be known; inUse reports whether an instance uses the one with that ARN.
func (l *Profiles) RemoveUnused(ctx context.Context, needed map[string]bool, inUse func(ctx context.Context, arn string) (bool, error)) error {
	var orphans []iamtypes.InstanceProfile
	own := l.path("")
	pages := iam.NewListInstanceProfilesPaginator(l.iam, &iam.ListInstanceProfilesInput{PathPrefix: &own})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("listing instance profiles: %w", err)
		}
		for _, v := range page.InstanceProfiles {
			if strings.HasPrefix(awssdk.ToString(v.Path), own) && !needed[awssdk.ToString(v.InstanceProfileName)] && l.clock.Since(awssdk.ToTime(v.CreateDate)) > time.Hour {
				orphans = append(orphans, v)
			}
		}
	}
	var errs []error // one profile that can't be deleted doesn't prevent the deletion of the others
	for _, v := range orphans {
		used, err := inUse(ctx, awssdk.ToString(v.Arn))
		if err != nil {
			errs = append(errs, fmt.Errorf("describing the instances of instance profile %s: %w", awssdk.ToString(v.InstanceProfileName), err))
			continue
		}
		if used {
			continue
		}
		if err := l.remove(ctx, own, &v); err != nil {
			errs = append(errs, err)
			continue
		}
		klog.FromContext(ctx).V(2).Info("Removed an unused instance profile", "profile", awssdk.ToString(v.InstanceProfileName))
	}
	return errors.Join(errs...)
}

// remove deletes an instance profile if it is below the path. It checks that itself, because a list need not match its request:
// IAM honours a PathPrefix, but other services with the same API don't.
func (l *Profiles) remove(ctx context.Context, path string, v *iamtypes.InstanceProfile) error {
	if !strings.HasPrefix(awssdk.ToString(v.Path), path) {
		return nil
	}
	for _, r := range v.Roles {
		_, err := l.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: v.InstanceProfileName, RoleName: r.RoleName})
		if err != nil && !sdk.IsNotFound(err) {
			return fmt.Errorf("removing the role from instance profile %s: %w", awssdk.ToString(v.InstanceProfileName), err)
		}
	}
	_, err := l.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: v.InstanceProfileName})
	if err != nil && !sdk.IsNotFound(err) {
		return fmt.Errorf("deleting instance profile %s: %w", awssdk.ToString(v.InstanceProfileName), err)
	}
	return nil
}

// RemoveOf deletes the profiles that were created for the role of a class.
func (l *Profiles) RemoveOf(ctx context.Context, nc *ec2nc.EC2NodeClass) error {
	if nc.Spec.Role == "" || nc.UID == "" {
		return nil
	}
	own := l.path(string(nc.UID) + "/")
	pages := iam.NewListInstanceProfilesPaginator(l.iam, &iam.ListInstanceProfilesInput{PathPrefix: &own})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("listing the instance profiles of EC2NodeClass %s: %w", nc.Name, err)
		}
		for i := range page.InstanceProfiles {
			if err := l.remove(ctx, own, &page.InstanceProfiles[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
