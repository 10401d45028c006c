package disruption

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// reasonInterrupted is a disruption reason that budgets do not limit.
	reasonInterrupted = "Interrupted"
	// drainFor is how much of the time before the end is kept for the drain: two rounds of pods with the usual 30 s of grace.
	drainFor = 75 * time.Second
)

// interruptions says what the kinds mean.
var interruptions = map[capacity.InterruptionKind]struct {
	why string
	// lost: the capacity was taken back, and none will be available for a while.
	lost bool
}{
	capacity.SpotInterrupted:        {why: "EC2 takes its spot capacity back", lost: true},
	capacity.ReservationInterrupted: {why: "its capacity reservation is taken back", lost: true},
	capacity.MaintenanceScheduled:   {why: "EC2 has scheduled a change of its machine"},
	capacity.MachineStopping:        {why: "its instance is stopping"},
	capacity.MachineTerminating:     {why: "its instance is terminating"},
}

// Interrupted handles what the cloud reports about instances. For each report it returns nil when it is done: recorded on the claim, or
// about no claim. Handling a report again changes nothing. Safe for concurrent use.
func (c *Controller) Interrupted(ctx context.Context, all []capacity.Interruption) []error {
	errs := make([]error, len(all))
	var claims karpv1.NodeClaimList
	if err := c.claims.List(ctx, &claims); err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("listing NodeClaims: %w", err)
		}
		return errs
	}
	byID := map[string]*karpv1.NodeClaim{}
	for i := range claims.Items {
		id := claims.Items[i].Status.ProviderID
		byID[capacity.InstanceID(id)] = &claims.Items[i]
	}
	for i, x := range all {
		// The queue may report instances of the whole account.
		if claim := byID[x.InstanceID]; x.InstanceID != "" && claim != nil && claim.DeletionTimestamp == nil {
			errs[i] = c.note(ctx, claim, x)
		}
	}
	return errs
}

// note records an interruption on its claim, unless an earlier end is recorded there. The claim is the caller's own copy.
func (c *Controller) note(ctx context.Context, claim *karpv1.NodeClaim, x capacity.Interruption) error {
	if x.Kind == capacity.SpotRebalance {
		c.recorder.Eventf(claim, nil, corev1.EventTypeNormal, string(x.Kind), "Check", "EC2 may take the instance's spot capacity back soon")
		return nil
	}
	means, known := interruptions[x.Kind]
	if !known {
		return nil
	}
	if means.lost {
		c.lost(claim)
	}
	at := c.drainBy(claim, x)
	if before, ok := interrupted(&machine{claim: claim}); ok && !at.Before(before.at) {
		return nil
	}
	// Of this claim and no other of its name; a conflict with somebody's status would cost a spot instance 20 s.
	body := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, claim.UID, objects.AnnotationInterrupted, at.UTC().Format(time.RFC3339)+" "+string(x.Kind))
	if err := c.claims.Patch(ctx, claim, client.RawPatch(types.MergePatchType, []byte(body))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("noting an interruption on NodeClaim %s: %w", claim.Name, err)
	}
	c.recorder.Eventf(claim, nil, corev1.EventTypeWarning, string(x.Kind), "Check", "The node will be drained by %s: %s", at.UTC().Format(time.RFC3339), means.why)
	klog.FromContext(ctx).Info("An instance is interrupted", "nodeClaim", claim.Name, "node", claim.Status.NodeName, "instance", x.InstanceID, "kind", x.Kind, "drainBy", at)
	c.Changed()
	return nil
}

// drainBy returns until when the node may wait for replacement capacity. A node that isn't initialized has no running pods.
func (c *Controller) drainBy(claim *karpv1.NodeClaim, x capacity.Interruption) time.Time {
	now := c.clock.Now()
	switch {
	case x.Kind == capacity.MachineStopping || x.Kind == capacity.MachineTerminating || condition(claim, karpv1.ConditionTypeInitialized) == nil:
		return now
	case x.Kind == capacity.MaintenanceScheduled && (x.Ends.IsZero() || x.Ends.Add(-drainFor).After(now.Add(leadMost))):
		return now.Add(leadMost) // often days ahead, but waiting gains nothing
	}
	if at := x.Ends.Add(-drainFor); at.After(now) {
		return at
	}
	return now
}

// instanceEnded reports whether the node is interrupted because its instance has ended, or is ending, for whatever reason.
func instanceEnded(m *machine) bool {
	_, kind, _ := strings.Cut(m.claim.Annotations[objects.AnnotationInterrupted], " ")
	return kind == string(capacity.MachineStopping) || kind == string(capacity.MachineTerminating)
}

// interrupted returns the exit of an interrupted node.
func interrupted(m *machine) (exit, bool) {
	when, kind, _ := strings.Cut(m.claim.Annotations[objects.AnnotationInterrupted], " ")
	at, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return exit{}, false
	}
	why := interruptions[capacity.InterruptionKind(kind)].why
	if why == "" {
		why = "it is interrupted"
	}
	return exit{at: at, reason: reasonInterrupted, why: why, forced: capacity.InterruptionKind(kind) != capacity.MaintenanceScheduled}, true
}
