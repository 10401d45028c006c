package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/klog/v2"
)

// keepTidy removes launch templates and instance profiles that launches created and that are no longer needed. It starts late: by then
// all classes are known, and the launches that an earlier leader recorded have been made.
func (p *Provider) keepTidy(ctx context.Context) {
	for sleep(ctx, p.clock, p.cfg.TidyEvery) {
		logger := klog.FromContext(ctx)
		if p.cfg.Hold() != "" {
			continue
		}
		if err := p.tidyTemplates(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Could not remove launch templates that are not in use")
		}
		if err := p.tidyProfiles(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Could not remove instance profiles that are not in use")
		}
	}
}

// tidyTemplates deletes this cluster's launch templates that were created, and last used, longer than TidyEvery ago. Instances don't
// need the template they were created from.
func (p *Provider) tidyTemplates(ctx context.Context) error {
	now := p.clock.Now()
	var idle []string
	pages := ec2.NewDescribeLaunchTemplatesPaginator(p.ec2, &ec2.DescribeLaunchTemplatesInput{
		Filters: []ec2types.Filter{p.cluster(), filter("tag-key", ec2nc.NodeClassTagKey)}, MaxResults: awssdk.Int32(200),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("describing launch templates: %w", err)
		}
		for _, t := range page.LaunchTemplates {
			if !p.ownTags(t.Tags, ec2nc.NodeClassTagKey) {
				continue
			}
			if name := awssdk.ToString(t.LaunchTemplateName); strings.HasPrefix(name, templatePrefix) && now.Sub(awssdk.ToTime(t.CreateTime)) > p.cfg.TidyEvery {
				idle = append(idle, name)
			}
		}
	}
	for _, name := range idle {
		err := p.templates.remove(name, now.Add(-p.cfg.TidyEvery), func() error {
			_, err := p.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: &name})
			return err
		})
		if err != nil && !IsNotFound(err) {
			return fmt.Errorf("deleting launch template %s: %w", name, err)
		}
	}
	return nil
}

// tidyProfiles deletes instance profiles that were created for classes of this cluster and that neither a class nor an instance uses
// now.
func (p *Provider) tidyProfiles(ctx context.Context) error {
	needed := map[string]bool{}
	p.mu.Lock()
	for _, c := range p.classes {
		needed[profileName(p.cfg.ClusterName, p.cfg.Region, c.current())] = true
	}
	p.mu.Unlock()
	if len(needed) == 0 {
		return nil // it is more likely that the classes could not be read than that there are none
	}
	var orphans []iamtypes.InstanceProfile
	own := p.profilePath("")
	pages := iam.NewListInstanceProfilesPaginator(p.iam, &iam.ListInstanceProfilesInput{PathPrefix: &own})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("listing instance profiles: %w", err)
		}
		for _, v := range page.InstanceProfiles {
			if strings.HasPrefix(awssdk.ToString(v.Path), own) && !needed[awssdk.ToString(v.InstanceProfileName)] && p.clock.Since(awssdk.ToTime(v.CreateDate)) > time.Hour {
				orphans = append(orphans, v)
			}
		}
	}
	for _, v := range orphans {
		users, err := p.describe(ctx, filter("iam-instance-profile.arn", awssdk.ToString(v.Arn)), live)
		if err != nil {
			return fmt.Errorf("describing the instances of instance profile %s: %w", awssdk.ToString(v.InstanceProfileName), err)
		}
		if len(users) > 0 {
			continue
		}
		if err := p.deleteProfile(ctx, own, &v); err != nil {
			return err
		}
		klog.FromContext(ctx).V(2).Info("Removed an unused instance profile", "profile", awssdk.ToString(v.InstanceProfileName))
	}
	return nil
}

// deleteProfile deletes an instance profile if it is below the path. It checks that itself, because a list need not match its request:
// IAM honours a PathPrefix, but other services with the same API don't.
func (p *Provider) deleteProfile(ctx context.Context, path string, v *iamtypes.InstanceProfile) error {
	if !strings.HasPrefix(awssdk.ToString(v.Path), path) {
		return nil
	}
	for _, r := range v.Roles {
		_, err := p.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: v.InstanceProfileName, RoleName: r.RoleName})
		if err != nil && !IsNotFound(err) {
			return fmt.Errorf("removing the role from instance profile %s: %w", awssdk.ToString(v.InstanceProfileName), err)
		}
	}
	_, err := p.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: v.InstanceProfileName})
	if err != nil && !IsNotFound(err) {
		return fmt.Errorf("deleting instance profile %s: %w", awssdk.ToString(v.InstanceProfileName), err)
	}
	return nil
}

// errRemoved tells callers that wait for a template while it is being deleted to request it again.
var errRemoved = errors.New("launch template is being removed")

// remove deletes a template unless it was used since. A caller who needs it meanwhile waits and creates it again.
func (t *templates) remove(name string, since time.Time, del func() error) error {
	t.mu.Lock()
	if m, ok := t.made[name]; ok && m.used.After(since) {
		t.mu.Unlock()
		return nil
	}
	m := &madeTemplate{once: make(chan struct{}), err: errRemoved}
	t.made[name] = m
	t.mu.Unlock()
	err := del()
	t.forget(name)
	close(m.once)
	return err
}
