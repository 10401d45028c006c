package aws

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// removeUnused removes launch templates and instance profiles that launches created and that are no longer needed, until ctx ends. It
// starts late: by then the launches that an earlier leader recorded have been made.
func (p *Provider) removeUnused(ctx context.Context) {
	for sdk.Sleep(ctx, p.clock, p.cfg.TidyEvery) {
		if p.cfg.Hold() == nil {
			p.tidy(ctx)
		}
	}
}

// tidy removes what isn't needed now. Instance profiles are not touched before all classes are known, because the profile of a class that isn't known
// yet would look unused.
func (p *Provider) tidy(ctx context.Context) {
	logger := klog.FromContext(ctx)
	if err := p.launcher.templates.RemoveUnused(ctx, p.cfg.TidyEvery); err != nil && ctx.Err() == nil {
		logger.Error(err, "Could not remove launch templates that are not in use")
	}
	if !p.cfg.Synced() {
		return
	}
	if err := p.classes.removeUnusedProfiles(ctx, p.instances.withProfile); err != nil && ctx.Err() == nil {
		logger.Error(err, "Could not remove instance profiles that are not in use")
	}
}
