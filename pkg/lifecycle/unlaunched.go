package lifecycle

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

const (
	// batchQuiet is how long after its deletion a claim waits for a launch that may have been under way, as long as nobody said
	// that it failed. It is longer than any request may take.
	batchQuiet = time.Minute
	batchPoll  = 2 * time.Second
)

// endUnlaunched ends a claim that has no instance on record. Its launch may have been sent all the same: the answer may be
// under way or lost. Its launch batch is searched; an instance that falls to this claim becomes its instance and ends like any other.
//
// Which instance falls to it is for capacity.InstanceOwners to say. As long as a live claim of the launch batch waits for its own, nothing is taken from
// the launch batch but what bears this claim's name.
func (c *Controller) endUnlaunched(ctx context.Context, l *life) (time.Duration, error) {
	current := &karpv1.NodeClaim{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: l.claim.Name}, current); apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("reading NodeClaim %s live: %w", l.claim.Name, err)
	}
	if current.ResourceVersion != l.claim.ResourceVersion {
		return batchPoll, nil // the cache is behind: the launch may have been recorded by now
	}
	batch := batchOf(current)
	if batch == nil {
		// LaunchBatches are recorded before they are sent, and letting go fails if one is recorded meanwhile.
		dropFinalizer(l.claim)
		return 0, nil
	}
	instances, err := c.cloud.FindBatch(ctx, batch.Token)
	if err != nil {
		return 0, fmt.Errorf("finding the instances of launch batch %s: %w", batch.Token, err)
	}
	owned, err := c.liveClaims(ctx)
	if err != nil {
		return 0, err
	}
	of, _ := owned.Assign(batch, instances)
	mine, falls := of[current.Name]
	settled := !owned.LiveWait(batch.Token)
	switch {
	case falls && (settled || mine.Claim == current.Name):
		klog.FromContext(ctx).V(2).Info("Found the instance of a claim that was deleted before its launch was recorded", "instance", mine.ID)
		l.claim.Status.ProviderID = mine.ProviderID
		l.claim.Status.ImageID = mine.ImageID
		return batchPoll, nil
	case launchFailed(current):
		dropFinalizer(l.claim) // should an instance turn up all the same, it is collected
		return 0, nil
	case !settled:
		return batchPoll, nil
	}
	if wait := c.left(current.Name, "launch batch", current.DeletionTimestamp.Time, batchQuiet, l.now); wait > 0 {
		return min(wait, lookEvery), nil
	}
	dropFinalizer(l.claim)
	return 0, nil
}

// liveClaims is what the API knows of all claims now, past every cache.
func (c *Controller) liveClaims(ctx context.Context) (claimSet, error) {
	var all karpv1.NodeClaimList
	if err := c.live.List(ctx, &all); err != nil {
		return claimSet{}, fmt.Errorf("listing NodeClaims live: %w", err)
	}
	return newClaimSet(all.Items), nil
}

// claimSet is all claims by what ties instances to them.
type claimSet struct {
	*capacity.InstanceOwners
	byProvider map[string]*karpv1.NodeClaim
}

func newClaimSet(claims []karpv1.NodeClaim) claimSet {
	s := claimSet{byProvider: map[string]*karpv1.NodeClaim{}}
	all := make([]*capacity.Claim, 0, len(claims))
	for i := range claims {
		claim := &claims[i]
		all = append(all, &capacity.Claim{Name: claim.Name, ProviderID: claim.Status.ProviderID, Deleting: claim.DeletionTimestamp != nil, LaunchBatch: batchOf(claim)})
		if id := claim.Status.ProviderID; id != "" {
			s.byProvider[id] = claim
		}
	}
	s.InstanceOwners = capacity.InstanceOwnersOf(all)
	return s
}

// batchOf is the launch batch recorded on a claim; nil: none was ever sent for it.
func batchOf(claim *karpv1.NodeClaim) *capacity.LaunchBatch {
	w, err := karpenter.BatchOf(claim)
	if err != nil || w == nil || w.Token == "" {
		return nil // it could not be launched from either
	}
	return w
}

// launchFailed says that whoever launches has given this claim's launch up. One that the spending guard has held may be launched by now.
func launchFailed(claim *karpv1.NodeClaim) bool {
	cond := condition(claim, karpv1.ConditionTypeLaunched)
	return cond != nil && cond.Status == metav1.ConditionFalse && cond.Reason != reasonPaused
}
