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
	// batchQuiet is how long after its deletion a claim waits for a launch that may have been under way, unless that is known to have
	// failed. It is longer than any request may take.
	batchQuiet = time.Minute
	batchPoll  = 2 * time.Second
)

// unlaunched ends a claim without a recorded instance. Its launch call may have been made all the same: the answer may be on the way or
// lost. So the instances of its launch batch are searched; if one of them belongs to this claim, it is recorded as the claim's and
// terminated like any other.
//
// capacity.InstanceOwners decides which instance belongs to it. As long as a live claim of the launch batch waits for its own, only an
// instance that is tagged with this claim's name counts.
type unlaunched struct {
	live  client.Reader
	cloud Inventory
	waits *waits
}

func (u *unlaunched) end(ctx context.Context, l *life) (time.Duration, error) {
	current := &karpv1.NodeClaim{}
	if err := u.live.Get(ctx, client.ObjectKey{Name: l.claim.Name}, current); apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("reading NodeClaim %s live: %w", l.claim.Name, err)
	}
	if current.ResourceVersion != l.claim.ResourceVersion {
		return batchPoll, nil // the cache is behind: the launch may have been recorded by now
	}
	batch := batchOf(current)
	if batch == nil {
		// Launch batches are recorded before their call, and removing the finalizer fails if one is recorded meanwhile.
		dropFinalizer(l.claim)
		return 0, nil
	}
	instances, err := u.cloud.FindBatch(ctx, batch.Token)
	if err != nil {
		return 0, fmt.Errorf("finding the instances of launch batch %s: %w", batch.Token, err)
	}
	owned, err := liveClaims(ctx, u.live)
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
		dropFinalizer(l.claim) // should an instance appear all the same, garbage collection terminates it
		return 0, nil
	case !settled:
		return batchPoll, nil
	}
	if wait := u.waits.left(current.Name, "launch batch", current.DeletionTimestamp.Time, batchQuiet, l.now); wait > 0 {
		return min(wait, lookEvery), nil
	}
	dropFinalizer(l.claim)
	return 0, nil
}

// liveClaims reads all claims from the API server, past every cache.
func liveClaims(ctx context.Context, live client.Reader) (claimSet, error) {
	var all karpv1.NodeClaimList
	if err := live.List(ctx, &all); err != nil {
		return claimSet{}, fmt.Errorf("listing NodeClaims live: %w", err)
	}
	return newClaimSet(all.Items), nil
}

// claimSet holds all claims by what ties instances to them.
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

// batchOf returns the launch batch recorded on a claim; nil: no call was ever made for it.
func batchOf(claim *karpv1.NodeClaim) *capacity.LaunchBatch {
	w, err := karpenter.BatchOf(claim)
	if err != nil || w == nil || w.Token == "" {
		return nil // such a record can't have been launched from, either
	}
	return w
}

// launchFailed reports whether the launch controller has given up this claim's launch. A claim that the spending guard has paused may have
// been launched by now.
func launchFailed(claim *karpv1.NodeClaim) bool {
	cond := condition(claim, karpv1.ConditionTypeLaunched)
	return cond != nil && cond.Status == metav1.ConditionFalse && cond.Reason != reasonPaused
}
