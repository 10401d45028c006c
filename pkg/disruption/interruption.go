package disruption

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	reasonInterrupted = "Interrupted"
	// ReasonInstanceEnded is the reason that Config.Ending gets when an instance ends that Dovetail has not terminated.
	ReasonInstanceEnded = "InstanceEnded"
	// drainFor is how much of the time before the end is kept for the drain: two rounds of pods with the usual 30 s of grace.
	drainFor = 75 * time.Second
)

// interruptionKinds says what the kinds mean.
var interruptionKinds = map[capacity.InterruptionKind]struct {
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

// interruption: the cloud takes the instance back, or changes its machine, or the instance has ended.
type interruption struct{}

func (interruption) budget() karpv1.DisruptionReason { return "" }

func (interruption) decide(m *candidate, _ time.Time) (*decision, error) {
	at, kind, ok := interruptedBy(m.claim)
	if !ok {
		return nil, nil
	}
	d := &decision{candidate: m, reason: reasonInterrupted, at: at, cloud: true, forced: kind != capacity.MaintenanceScheduled}
	if d.message = interruptionKinds[kind].why; d.message == "" {
		d.message = "it is interrupted"
	}
	if kind == capacity.MachineStopping || kind == capacity.MachineTerminating {
		d.ending = ReasonInstanceEnded
	}
	return d, nil
}

// interruptedBy returns what is recorded on a claim about an interruption: by when its node is drained, and why.
func interruptedBy(claim *karpv1.NodeClaim) (at time.Time, kind capacity.InterruptionKind, ok bool) {
	when, what, _ := strings.Cut(claim.Annotations[objects.AnnotationInterrupted], " ")
	at, err := time.Parse(time.RFC3339, when)
	return at, capacity.InterruptionKind(what), err == nil
}

// interruptions records what the cloud reports about instances on their claims. Safe for concurrent use.
type interruptions struct {
	claims   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
	lost     func(*karpv1.NodeClaim) // as in Config
	changed  func()                  // triggers a pass
}

// Interrupted handles what the cloud reports about instances. For each report it returns nil when it is done: recorded on the claim, or
// about no claim. Handling a report again changes nothing.
func (i *interruptions) Interrupted(ctx context.Context, all []capacity.Interruption) []error {
	errs := make([]error, len(all))
	var claims karpv1.NodeClaimList
	if err := i.claims.List(ctx, &claims); err != nil {
		for n := range errs {
			errs[n] = fmt.Errorf("listing NodeClaims: %w", err)
		}
		return errs
	}
	byID := map[string]*karpv1.NodeClaim{}
	for n := range claims.Items {
		id := claims.Items[n].Status.ProviderID
		byID[capacity.InstanceID(id)] = &claims.Items[n]
	}
	for n, x := range all {
		// The queue may report instances of the whole account.
		if claim := byID[x.InstanceID]; x.InstanceID != "" && claim != nil && claim.DeletionTimestamp == nil {
			errs[n] = i.note(ctx, claim, x)
		}
	}
	return errs
}

// note records an interruption on its claim, unless an earlier end is recorded there. The claim is the caller's own copy.
func (i *interruptions) note(ctx context.Context, claim *karpv1.NodeClaim, x capacity.Interruption) error {
	if x.Kind == capacity.SpotRebalance {
		i.recorder.Eventf(claim, nil, corev1.EventTypeNormal, string(x.Kind), "Check", "EC2 may take the instance's spot capacity back soon")
		return nil
	}
	if x.Kind == capacity.InterruptionRefuted {
		i.recorder.Eventf(claim, nil, corev1.EventTypeWarning, string(x.Kind), "Check",
			"A message on the interruption queue says that the instance ends or will be changed; EC2 doesn't confirm that, so it is ignored")
		return nil
	}
	means, known := interruptionKinds[x.Kind]
	if !known {
		return nil
	}
	if means.lost {
		i.lost(claim)
	}
	at := i.drainBy(claim, x)
	if before, _, ok := interruptedBy(claim); ok && !at.Before(before) {
		return nil
	}
	// Of this claim and no other of its name; a conflict with somebody's status would cost a spot instance 20 s.
	body := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, claim.UID, objects.AnnotationInterrupted, at.UTC().Format(time.RFC3339)+" "+string(x.Kind))
	if err := i.claims.Patch(ctx, claim, client.RawPatch(types.MergePatchType, []byte(body))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("noting an interruption on NodeClaim %s: %w", claim.Name, err)
	}
	doubt := ""
	if x.Unconfirmed {
		doubt = " (so says a message on the interruption queue, which EC2 has not confirmed)"
	}
	i.recorder.Eventf(claim, nil, corev1.EventTypeWarning, string(x.Kind), "Check", "The node will be drained by %s: %s%s", at.UTC().Format(time.RFC3339), means.why, doubt)
	klog.FromContext(ctx).Info("An instance is interrupted", "nodeClaim", claim.Name, "node", claim.Status.NodeName, "instance", x.InstanceID, "kind", x.Kind, "drainBy", at)
	i.changed()
	return nil
}

// drainBy returns until when the node may wait for replacement capacity. A node that isn't initialized has no running pods.
func (i *interruptions) drainBy(claim *karpv1.NodeClaim, x capacity.Interruption) time.Time {
	now := i.clock.Now()
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
