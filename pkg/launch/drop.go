package launch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// unanswered holds claims of the last leader of which the cache shows no launch, until the API server has said whether there was one. Safe for
// concurrent use.
type unanswered struct {
	mu       sync.Mutex
	open     map[string]bool   // names of those without an answer
	launched []*capacity.Claim // those that were launched, as the API server has them; not taken over yet
}

func (u *unanswered) add(claims []*capacity.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range claims {
		u.open[c.Name] = true
	}
}

// answered records the API server's answer about a claim; launched is nil if the claim is gone.
func (u *unanswered) answered(name string, launched *capacity.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, name)
	if launched != nil {
		u.launched = append(u.launched, launched)
	}
}

// take returns the claims that were launched, each once, by name. A claim waits for the answers about all claims of its launch batch: a repeated call
// returns their instances, too, and those of claims that nobody knows to be launched would be terminated.
func (u *unanswered) take() (ready []*capacity.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.launched = slices.DeleteFunc(u.launched, func(c *capacity.Claim) bool {
		if c.LaunchBatch != nil && slices.ContainsFunc(c.LaunchBatch.Claims, func(name string) bool { return u.open[name] }) {
			return false
		}
		ready = append(ready, c)
		return true
	})
	slices.SortFunc(ready, func(a, b *capacity.Claim) int { return cmp.Compare(a.Name, b.Name) })
	return ready
}

// names returns the names of the claims without an answer, in order.
func (u *unanswered) names() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.open))
}

// drop deletes claims of which no launch is recorded, and returns those whose launch the API server knows, as it has them. Nothing is planned
// before it returns: claims about which there is no answer for a while are left to dropLater.
func (r *recovery) drop(ctx context.Context, claims []*capacity.Claim) []*capacity.Claim {
	r.unanswered.add(claims)
	started := r.calls.clock.Now()
	r.calls.each(ctx, len(claims), func(i int) {
		for wait := firstRetry; !r.ask(ctx, claims[i].Name); wait *= 2 {
			if r.calls.clock.Since(started) > maxRetry || !r.calls.sleep(ctx, wait) {
				return
			}
		}
	})
	if len(r.unanswered.names()) > 0 {
		r.calls.wg.Go(func() { r.dropLater(ctx) })
	}
	return r.unanswered.take()
}

// dropLater asks again until there is an answer about every claim. The planner takes over those that were launched (Readopt). Their pods may
// have been planned for meanwhile: a launch that was recorded and not made is not made for pods that don't need it any more.
func (r *recovery) dropLater(ctx context.Context) {
	for names := r.unanswered.names(); len(names) > 0 && r.calls.sleep(ctx, maxRetry); names = r.unanswered.names() {
		r.ownership.pause(ctx)
		r.calls.each(ctx, len(names), func(i int) { r.ask(ctx, names[i]) })
		r.cleanup.triggers.Replan()
	}
}

// ask has the API server delete a claim if it knows of no launch of it, and reports whether there was an answer.
func (r *recovery) ask(ctx context.Context, name string) bool {
	var launched *capacity.Claim
	err := panics.Catch(ctx, "launch", func() (err error) {
		launched, err = r.cleanup.drop(ctx, name)
		return err
	})
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "nodeClaim", name)
	switch {
	case err != nil && ctx.Err() == nil:
		logger.Error(err, "Could not find out whether the last leader launched a claim, or delete it; trying again")
	case launched != nil:
		logger.Info("The last leader launched a claim that seemed not to be launched")
	}
	if err == nil {
		r.unanswered.answered(name, launched)
	}
	return err == nil
}
