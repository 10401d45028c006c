package launch

import (
	"context"
	"slices"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// handOut assigns the instances of a launch batch to its claims that wait for one, finishes their nodes, and returns the claims that get
// none. An instance of a claim that is being deleted is left to termination: its kubelet may have registered, and pods may run there. An
// instance that belongs to no claim is ended. before holds the claims as they were found after a restart; if labels is nil, each claim's
// own labels are used.
func (b *batchLauncher) handOut(ctx context.Context, rec *capacity.LaunchBatch, by provisioning.Requester, waiting, before []*capacity.Claim, insts []capacity.Instance, labels map[string]string) (without []*capacity.Claim) {
	owners := b.batchOwners(rec, waiting, before)
	of, over := owners.Assign(rec, insts)
	for _, c := range waiting {
		inst, ok := of[c.Name]
		switch {
		case ok:
			on := labels
			if on == nil {
				on = c.Labels
			}
			b.calls.wg.Go(func() { b.finisher.finish(ctx, by, c, inst, on) })
		case owners.Waits(c.Name):
			without = append(without, c)
		}
	}
	for _, inst := range over {
		klog.FromContext(ctx).Info("Terminating an instance of a launch batch that no claim owns", "token", rec.Token, "instance", inst.ID)
		b.calls.wg.Go(func() { // it may take minutes, and nothing else that runs in the background must wait for that
			_ = panics.Catch(ctx, "launch", func() error { // logged by Catch
				b.finisher.end(ctx, inst)
				return nil
			})
		})
	}
	return without
}

// batchOwners returns which claims may own instances of a batch: claims that wait for one here, claims that are being deleted and have the batch
// on record, and claims that have an instance, now or after the restart. Any other claim of the batch has been given up by this process and
// is about to be deleted, or is being deleted and its termination looks for no instance of this batch.
func (b *batchLauncher) batchOwners(rec *capacity.LaunchBatch, waiting, before []*capacity.Claim) *capacity.InstanceOwners {
	claims := slices.DeleteFunc(slices.Clone(before), func(c *capacity.Claim) bool { return c.ProviderID == "" })
	here := map[string]*capacity.Claim{}
	for _, c := range waiting {
		here[c.Name] = c
	}
	for _, name := range rec.Claims {
		c, now := here[name], b.claims.Current(name)
		if now != nil && (c == nil && (now.Deleting && now.LaunchedBy(rec) || now.ProviderID != "") || c != nil && now.UID == c.UID) {
			c = now
		}
		if c != nil {
			own := *c
			own.LaunchBatch = rec
			claims = append(claims, &own)
		}
	}
	return capacity.InstanceOwnersOf(claims)
}
