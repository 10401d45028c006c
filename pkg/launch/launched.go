package launch

import (
	"context"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// showLag is how long the cloud may take to show an instance to whoever looks for it by its tag. EC2 says "seconds to minutes";
	// should it be longer, there is one machine too many until garbage collection has found it.
	showLag   = time.Minute
	firstLook = time.Second
)

// launched are the instances that earlier calls have brought under the launch batch's token. They are looked for until there is one for each
// claim or the cloud must have shown them: that none can be seen yet is no reason to launch others under another token. Nothing else
// waits meanwhile but the launch batch itself. An error of the last look leaves it open what there is.
func (m *Motor) launched(ctx context.Context, rec capacity.LaunchBatch) ([]capacity.Instance, error) {
	began := m.clock.Now()
	for wait := firstLook; ; wait *= 2 {
		found, err := m.cloud.FindBatch(ctx, rec.Token)
		left := showLag - m.clock.Since(began)
		if err == nil && len(found) >= len(rec.Claims) || left <= 0 || ctx.Err() != nil {
			return found, err
		}
		if len(found) == 0 && wait == firstLook {
			m.log(ctx).V(2).Info("A launch may have worked though nothing shows yet; looking on", "token", rec.Token, "claims", len(rec.Claims), "err", err)
		}
		if !m.sleep(ctx, min(wait, left)) {
			return nil, ctx.Err()
		}
	}
}
