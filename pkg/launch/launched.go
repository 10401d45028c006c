package launch

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// showLag is how long the cloud may take until a search by tag finds a new instance. EC2 says "seconds to minutes"; should it take
	// longer, there is one instance too many until garbage collection finds it.
	showLag   = time.Minute
	firstLook = time.Second
)

// launched returns the instances that earlier calls have launched under the batch's token. It repeats the search until there is one for each claim,
// or until showLag is over, when the cloud must have shown them. Before that nothing may be launched for these claims under another token, because
// their instances may exist. Only this batch waits. If the last search fails, it is unknown what was launched, and launched returns the error.
func (b *batchLauncher) launched(ctx context.Context, rec capacity.LaunchBatch) ([]capacity.Instance, error) {
	began := b.calls.clock.Now()
	for wait := firstLook; ; wait *= 2 {
		found, err := b.cloud.FindBatch(ctx, rec.Token)
		left := showLag - b.calls.clock.Since(began)
		if err == nil && len(found) >= len(rec.Claims) || left <= 0 || ctx.Err() != nil {
			return found, err
		}
		if len(found) == 0 && wait == firstLook {
			klog.FromContext(ctx).V(2).Info("A launch may have worked although no instance is visible yet; searching again", "token", rec.Token, "claims", len(rec.Claims), "err", err)
		}
		if !b.calls.sleep(ctx, min(wait, left)) {
			return nil, ctx.Err()
		}
	}
}
