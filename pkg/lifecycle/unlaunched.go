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
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/shared"
)

const (
	// batchQuiet is how long after its deletion a claim waits for a launch that may have been under way, unless that is known to have
	// failed. It is longer than any request may take.
	batchQuiet = time.Minute
	// A deleted claim is looked at every batchPoll at first, then more and more rarely: the pause is an eighth of the time since the first
	// look, at most batchPollMost. The claims and instances that this needs are read for all such claims together, not more often than every
	// batchPoll.
	batchPoll     = 2 * time.Second
	batchPollMost = 30 * time.Second
)

// unlaunched ends a claim without a recorded instance. Its launch call may have been made all the same: the answer may be on the way or
// lost. So the instances of its launch batch are searched; if one of them belongs to this claim, it is recorded as the claim's and
// terminated like any other.
//
// capacity.InstanceOwners decides which instance belongs to the claim. As long as another claim of the launch batch, which isn't being deleted,
// waits for an instance, only an instance that is tagged with this claim's name counts.
type unlaunched struct {
	live  client.Reader
	cloud Inventory
	waits *waits
	// claims is the API server's answer which claims there are; launched is the cloud's answer which instances a launch batch has, by its token.
	claims   shared.Answer[claimSet]
	launched memory[string, *shared.Answer[[]capacity.Instance]]
	turns    memory[string, turn] // by claim
}

// turn is when a claim is looked at next. An answer that was read before next doesn't count: it may be older than the claim, or is the answer
// of the last look.
type turn struct {
	begun, next time.Time // the times of the claim's first look and of its next look
	failed      bool      // the launch was known to have failed
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
	at := u.turns.update(current.Name, func(t turn, ok bool) turn {
		if failed := launchFailed(current); !ok || failed && !t.failed {
			return turn{begun: l.now, next: l.now, failed: failed}
		}
		return t
	})
	if wait := at.next.Sub(l.now); wait > 0 {
		return wait, nil
	}
	owned, instances, wait, err := u.look(ctx, batch.Token, at.next, l.now)
	if wait > 0 || err != nil {
		return wait, err
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
		return u.later(current.Name, batchPollMost, l.now), nil
	}
	if left := u.waits.left(current.Name, "launch batch", current.DeletionTimestamp.Time, batchQuiet, l.now); left > 0 {
		return u.later(current.Name, left, l.now), nil
	}
	dropFinalizer(l.claim)
	return 0, nil
}

// later returns how long a claim waits until it is looked at again: no longer than most.
func (u *unlaunched) later(claim string, most time.Duration, now time.Time) (wait time.Duration) {
	u.turns.update(claim, func(t turn, _ bool) turn {
		wait = min(max((now.Sub(t.begun)/8).Truncate(time.Second), batchPoll), batchPollMost, most)
		t.next = now.Add(wait)
		return t
	})
	return wait
}

// look returns all claims and the instances of a launch batch, both read at the time since or later. If wait is not zero, there is no such answer
// yet, and look is to be called again after that time.
func (u *unlaunched) look(ctx context.Context, token string, since, now time.Time) (owned claimSet, instances []capacity.Instance, wait time.Duration, err error) {
	owned, wait, err = u.claims.Get(since, now, batchPoll, func() (claimSet, error) {
		u.launched.prune(func(_ string, s *shared.Answer[[]capacity.Instance]) bool { return s.Idle(now) })
		return liveClaims(ctx, u.live)
	})
	if wait > 0 || err != nil {
		return owned, nil, wait, err
	}
	batch := u.launched.update(token, func(s *shared.Answer[[]capacity.Instance], ok bool) *shared.Answer[[]capacity.Instance] {
		if !ok {
			s = &shared.Answer[[]capacity.Instance]{}
		}
		return s
	})
	instances, wait, err = batch.Get(since, now, batchPoll, func() ([]capacity.Instance, error) {
		found, err := u.cloud.FindBatch(ctx, token)
		if err != nil {
			return nil, fmt.Errorf("finding the instances of launch batch %s: %w", token, err)
		}
		return found, nil
	})
	return owned, instances, wait, err
}

// forget drops what is remembered about a claim that is gone.
func (u *unlaunched) forget(claim string) { u.turns.forget(claim) }

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
		return nil // nothing can have been launched from such a record
	}
	return w
}

// launchFailed reports whether the launch controller has given up this claim's launch. A claim that the spending guard has paused may have
// been launched by now.
func launchFailed(claim *karpv1.NodeClaim) bool {
	cond := condition(claim, karpv1.ConditionTypeLaunched)
	return cond != nil && cond.Status == metav1.ConditionFalse && cond.Reason != reasonPaused
}
