package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// finalization is the only stage of a deleted claim.
type finalization struct {
	pods        *boundPods
	reports     *reports
	recorder    recorder
	unlaunched  *unlaunched
	termination *termination
}

// reconcile terminates a deleted claim's node step by step and removes the claim's finalizer.
func (f *finalization) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	if !hasFinalizer(l.claim) {
		return 0, nil
	}
	if l.claim.Status.ProviderID == "" {
		return f.unlaunched.end(ctx, l)
	}
	deadline := f.deadline(l.claim)
	// Every Node of the claim is terminated in turn. Only the Node in use is drained: stale ones have no kubelet that could end pods.
	for _, n := range l.match.all() {
		e := &ending{claim: l.claim, node: n, providerID: l.claim.Status.ProviderID, deadline: deadline, now: l.now, clock: l.clock}
		if wait, err := f.termination.end(ctx, e); wait != 0 || err != nil {
			return wait, err
		}
	}
	if l.match.node == nil {
		e := &ending{claim: l.claim, providerID: l.claim.Status.ProviderID, deadline: deadline, now: l.now, clock: l.clock}
		if wait, err := f.termination.end(ctx, e); wait != 0 || err != nil {
			return wait, err
		}
	}
	if l.match.node == nil && l.match.taken == nil {
		err := f.pods.deleteOrphaned(ctx, l.claim.Status.NodeName)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return 0, err
		}
		if err != nil { // the API server or a webhook refuses the deletion of the pods; waiting longer wouldn't change that
			klog.FromContext(ctx).Info("Pods of a deleted Node could not be deleted", "node", l.claim.Status.NodeName, "err", err)
		}
	}
	dropFinalizer(l.claim)
	if !f.reports.first(l.claim.Name, claimTerminated) {
		return 0, nil // the termination was counted before; the cache doesn't show yet that the claim is gone
	}
	countTermination(l)
	klog.FromContext(ctx).V(2).Info("NodeClaim terminated", "instance", capacity.InstanceID(l.claim.Status.ProviderID))
	return 0, nil
}

// staleDeadline: a deadline that is recorded on a claim counts unless it lies further than this before the time of the claim's deletion. An older
// deadline was recorded for a deletion that never came, and would end pods without a drain. The allowance is long because the clock that the
// deadline was taken from and that of the API server, which sets the time of the deletion, may be minutes apart. When pkg/disruption deletes a
// claim, it records the deadline anew before.
const staleDeadline = ownPatience

// deadline returns when a drain ends whatever is left, from the claim's terminationGracePeriod. It is recorded on the claim
// once, where a user may change it; a value that can't be parsed is no deadline, and gets an event.
func (f *finalization) deadline(claim *karpv1.NodeClaim) time.Time {
	if value, ok := claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; ok {
		t, err := time.Parse(time.RFC3339, value)
		if err != nil {
			f.recorder.event(claim, nil, corev1.EventTypeWarning, reasonTerminationFailed, "Drain",
				"annotation %s is ignored: %v", karpv1.NodeClaimTerminationTimestampAnnotationKey, err)
			return time.Time{}
		}
		if !t.Before(claim.DeletionTimestamp.Add(-staleDeadline)) {
			return t
		}
	}
	if claim.Spec.TerminationGracePeriod == nil {
		return time.Time{}
	}
	deadline := claim.DeletionTimestamp.Add(claim.Spec.TerminationGracePeriod.Duration)
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey] = deadline.Format(time.RFC3339)
	f.recorder.event(claim, nil, corev1.EventTypeWarning, reasonGracePeriodExpiring, "Drain",
		"all pods will be deleted by %s", deadline.Format(time.RFC3339))
	return deadline
}

// unclaimed are Nodes whose claim is gone.
type unclaimed struct {
	nodes       *nodes
	index       *claimIndex
	live        client.Reader
	termination *termination
	clock       clock.Clock
}

// reconcile terminates a deleted managed Node that has no claim.
func (u *unclaimed) reconcile(ctx context.Context, name string) (time.Duration, error) {
	node, err := u.nodes.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("finding Node %s: %w", name, err)
	}
	if !u.nodes.finalized(node) || node.DeletionTimestamp == nil || len(u.index.of(node)) > 0 {
		return 0, nil
	}
	owned, err := liveClaims(ctx, u.live)
	if err != nil {
		return 0, err
	}
	if claim := owned.byProvider[node.Spec.ProviderID]; claim != nil {
		// It is another Dovetail's, and only the Node is labelled as ours, or so new that the cache doesn't have it, and comes by itself. Asking again has a
		// back-off: all claims are listed for it.
		return 0, fmt.Errorf("NodeClaim %s, whose label %s is %q, has the instance of Node %s, and is not in the cache", claim.Name, objects.LabelManagedBy,
			claim.Labels[objects.LabelManagedBy], name)
	}
	return u.termination.end(ctx, &ending{node: node, providerID: node.Spec.ProviderID, now: u.clock.Now(), clock: u.clock})
}
