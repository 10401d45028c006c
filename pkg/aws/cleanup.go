package aws

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// removeUnused removes launch templates and instance profiles that launches created and that are no longer needed, until ctx ends. It
// starts late: by then all classes are known, and the launches that an earlier leader recorded have been made.
func (p *Provider) removeUnused(ctx context.Context) {
	for sdk.Sleep(ctx, p.clock, p.cfg.TidyEvery) {
		logger := klog.FromContext(ctx)
		if p.cfg.Hold() != nil {
			continue
		}
		if err := p.launcher.templates.RemoveUnused(ctx, p.cfg.TidyEvery); err != nil && ctx.Err() == nil {
			logger.Error(err, "Could not remove launch templates that are not in use")
		}
		if err := p.classes.removeUnusedProfiles(ctx, p.instances.withProfile); err != nil && ctx.Err() == nil {
			logger.Error(err, "Could not remove instance profiles that are not in use")
		}
	}
}
