package launchtemplate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// RemoveUnused deletes this Dovetail's launch templates that were created, and last used, longer ago than idleFor. Instances don't need the
// template they were created from.
func (t *Templates) RemoveUnused(ctx context.Context, idleFor time.Duration) error {
	now := t.clock.Now()
	var idle []string
	pages := ec2.NewDescribeLaunchTemplatesPaginator(t.api, &ec2.DescribeLaunchTemplatesInput{
		Filters: []ec2types.Filter{t.owner.Filter(), sdk.Filter("tag-key", ec2nc.NodeClassTagKey)}, MaxResults: awssdk.Int32(200),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("describing launch templates: %w", err)
		}
		for _, v := range page.LaunchTemplates {
			if !t.owner.Marked(v.Tags, ec2nc.NodeClassTagKey) || !t.owner.Marked(v.Tags, ec2nc.NodePoolTagKey) { // the IAM policy asks for the pool's tag
				continue
			}
			if !t.owner.Own(tagsOf(v.Tags)) { // whether another Dovetail uses it isn't known here
				continue
			}
			if name := awssdk.ToString(v.LaunchTemplateName); strings.HasPrefix(name, templatePrefix) && now.Sub(awssdk.ToTime(v.CreateTime)) > idleFor {
				idle = append(idle, name)
			}
		}
	}
	var errs []error // one template that can't be deleted doesn't prevent the deletion of the others
	for _, name := range idle {
		err := t.remove(name, now.Add(-idleFor), func() error {
			_, err := t.api.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: &name})
			return err
		})
		if err != nil && !sdk.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting launch template %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func tagsOf(tags []ec2types.Tag) map[string]string {
	out := map[string]string{}
	for _, t := range tags {
		out[awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
	}
	return out
}

// errRemoved tells callers that wait for a template while it is being deleted to request it again.
var errRemoved = errors.New("launch template is being removed")

// remove deletes a template unless it was used since. A caller who needs it meanwhile waits and creates it again.
func (t *Templates) remove(name string, since time.Time, del func() error) error {
	t.mu.Lock()
	if m, ok := t.made[name]; ok && m.used.After(since) {
		t.mu.Unlock()
		return nil
	}
	m := &madeTemplate{once: make(chan struct{}), err: errRemoved}
	t.made[name] = m
	t.mu.Unlock()
	err := del()
	t.Forget(name)
	close(m.once)
	return err
}
