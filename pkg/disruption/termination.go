package disruption

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
)

const (
	// reportEvery is how often the decision about a claim is reported again in a dry run.
	reportEvery = time.Hour
	// deadlineHolds: a deadline on a claim that was over longer ago than this is recorded anew. The deletion that it was recorded for has failed,
	// and package lifecycle ignores deadlines that lie well before a claim's deletion.
	deadlineHolds = time.Minute
)

// terminations deletes the claims of nodes that are to end. Only the goroutine that makes the passes uses it.
type terminations struct {
	claims     client.Client
	recorder   events.EventRecorder
	clock      clock.PassiveClock
	brake      *brake.Brake
	dryRun     bool
	ending     func(ctx context.Context, claim, reason string)
	causeKnown func(ctx context.Context, claim string) bool // whether it is known why the instance has ended (Config.CauseKnown); nil: it always is
	rollOuts   *rollOuts

	// What these hold may be lost at any moment, by a restart of the process, without harm.

	// deleted are the claims, by UID, that were deleted here and that the cache still shows without deletion timestamp.
	deleted map[string]bool
	// reported is when a decision that a dry run doesn't carry out was last reported, by UID and reason.
	reported map[string]time.Time
}

// braked reports whether too many nodes were terminated within the last minute, and records an event on the claim if so.
func (t *terminations) braked(m *candidate) bool {
	wait := t.brake.Wait(t.clock.Now())
	if wait > 0 {
		t.recorder.Eventf(m.claim, nil, corev1.EventTypeWarning, reasonBlocked, "Disrupt",
			"%d nodes have been terminated within a minute (maxTerminationsPerMinute): this one has to wait", t.brake.PerMinute())
	}
	return wait > 0
}

// dry reports whether the node isn't terminated because this is a dry run. If so, it says by event and log that the node would be terminated.
func (t *terminations) dry(ctx context.Context, d *decision) bool {
	if !t.dryRun || d.cloud {
		return false
	}
	now, key := t.clock.Now(), d.uid()+" "+d.reason
	if last, ok := t.reported[key]; ok && now.Sub(last) < reportEvery {
		return true
	}
	t.reported[key] = now
	t.event(d.candidate, reasonDryRun, "Would terminate the node: "+d.message)
	klog.FromContext(ctx).Info("Dry run: would terminate a node", "nodeClaim", d.claim.Name, "node", d.claim.Status.NodeName, "reason", d.reason, "message", d.message)
	return true
}

// waits reports whether it is still being found out why the decision's instance has ended.
func (t *terminations) waits(ctx context.Context, d *decision) bool {
	return d.ending == ReasonInstanceEnded && t.causeKnown != nil && !t.causeKnown(ctx, d.claim.Name)
}

// end deletes a claim. After an error it may be deleted all the same.
func (t *terminations) end(ctx context.Context, d *decision) error {
	if err := t.setDeadline(ctx, d); err != nil {
		return err
	}
	t.ending(ctx, d.claim.Name, cmp.Or(d.ending, d.reason))
	if err := t.claims.Delete(ctx, d.claim, client.Preconditions{UID: &d.claim.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeClaim %s: %w", d.claim.Name, err)
	}
	t.deleted[d.uid()] = true
	t.rollOuts.ended(d, t.clock.Now())
	t.event(d.candidate, reasonTerminating, "Terminating the node: "+d.message)
	d.count()
	klog.FromContext(ctx).V(2).Info("Terminating a node", "nodeClaim", d.claim.Name, "node", d.claim.Status.NodeName, "reason", d.reason, "message", d.message)
	return nil
}

// setDeadline records on a claim when the drain of its node ends, if that is earlier than the claim says, or if what the claim says was for a
// deletion that never came.
func (t *terminations) setDeadline(ctx context.Context, d *decision) error {
	at := d.deadline
	if at.IsZero() {
		return nil
	}
	if grace := d.claim.Spec.TerminationGracePeriod; grace != nil {
		if own := t.clock.Now().Add(grace.Duration); own.Before(at) {
			at = own
		}
	}
	const key = karpv1.NodeClaimTerminationTimestampAnnotationKey
	if had, err := time.Parse(time.RFC3339, d.claim.Annotations[key]); err == nil && !had.After(at) && t.clock.Since(had) < deadlineHolds {
		return nil
	}
	body := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, d.claim.UID, key, at.UTC().Format(time.RFC3339))
	obj := &karpv1.NodeClaim{}
	obj.Name = d.claim.Name
	if err := t.claims.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(body))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("recording on NodeClaim %s when the drain of its node ends: %w", d.claim.Name, err)
	}
	return nil
}

// event records an event on claim and Node.
func (t *terminations) event(m *candidate, reason, note string) {
	t.recorder.Eventf(m.claim, nil, corev1.EventTypeNormal, reason, "Disrupt", "%s", note)
	if m.node != nil {
		t.recorder.Eventf(m.node, nil, corev1.EventTypeNormal, reason, "Disrupt", "%s", note)
	}
}

// prune forgets claims whose deletion the cache shows, and what was reported long ago.
func (t *terminations) prune(s *cluster) {
	undeleted := map[string]bool{}
	for _, m := range s.candidates {
		if m.claim.DeletionTimestamp == nil {
			undeleted[m.uid()] = true
		}
	}
	maps.DeleteFunc(t.deleted, func(uid string, _ bool) bool { return !undeleted[uid] })
	maps.DeleteFunc(t.reported, func(_ string, at time.Time) bool { return t.clock.Since(at) > 2*reportEvery })
}
