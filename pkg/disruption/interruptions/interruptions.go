// Package interruptions records what the cloud announces about instances on their NodeClaims. It ends nothing.
package interruptions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/rebalance"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// drainFor is how much of the time before the end is kept for the drain: two rounds of pods with the usual 30 s of grace.
const drainFor = 75 * time.Second

// kinds says what the kinds mean.
var kinds = map[capacity.InterruptionKind]struct {
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

// Why says what a kind means, as a clause; empty: the kind is unknown.
func Why(kind capacity.InterruptionKind) string { return kinds[kind].why }

// Of returns what is recorded on a claim about an interruption: when the drain of its node begins at the latest, and why.
func Of(claim *karpv1.NodeClaim) (at time.Time, kind capacity.InterruptionKind, ok bool) {
	when, what, _ := strings.Cut(claim.Annotations[objects.AnnotationInterrupted], " ")
	at, err := time.Parse(time.RFC3339, when)
	return at, capacity.InterruptionKind(what), err == nil
}

// Config holds the parts of a Recorder. All are required.
type Config struct {
	// Claims reads NodeClaims and NodePools from a cache, and patches claims.
	Claims   client.Client
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// LeadMost is how long before the end of a node its replacement begins at the earliest.
	LeadMost time.Duration
	// Lost is called for a claim whose capacity is taken back, Leaving for one whose capacity the cloud recommends to leave, if its pool asks
	// for that; both perhaps more than once.
	Lost, Leaving func(*karpv1.NodeClaim)
	// Changed is called when something was recorded.
	Changed func()
}

// Recorder records what the cloud reports about instances on their claims. Safe for concurrent use.
type Recorder struct{ cfg Config }

// New returns a Recorder.
func New(cfg Config) *Recorder { return &Recorder{cfg: cfg} }

// Interrupted handles what the cloud reports about instances. For each report it returns nil when it is done: recorded on the claim, or
// about no claim. Handling a report again changes nothing.
func (i *Recorder) Interrupted(ctx context.Context, all []capacity.Interruption) []error {
	errs := make([]error, len(all))
	var claims karpv1.NodeClaimList
	if err := i.cfg.Claims.List(ctx, &claims); err != nil {
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

// note records an interruption on its claim, unless a more urgent one is recorded there. The claim is the caller's own copy.
func (i *Recorder) note(ctx context.Context, claim *karpv1.NodeClaim, x capacity.Interruption) error {
	if x.Kind == capacity.SpotRebalance {
		return i.recommend(ctx, claim)
	}
	if x.Kind == capacity.InterruptionRefuted {
		i.cfg.Recorder.Eventf(claim, nil, corev1.EventTypeWarning, string(x.Kind), "Check",
			"A message on the interruption queue says that the instance ends or will be changed; EC2 doesn't confirm that, so it is ignored")
		return nil
	}
	means, known := kinds[x.Kind]
	if !known {
		return nil
	}
	if means.lost {
		i.cfg.Lost(claim)
	}
	at := i.drainBy(claim, x)
	if before, kind, ok := Of(claim); ok && !supersedes(at, x.Kind, before, kind) {
		return nil
	}
	// A patch without resourceVersion can't conflict: a conflict would cost 20 s, until the message is received again, and a spot instance has 120 s.
	if err := i.annotate(ctx, claim, objects.AnnotationInterrupted, at.UTC().Format(time.RFC3339)+" "+string(x.Kind)); err != nil {
		return err
	}
	unless, doubt := "", ""
	if x.Kind == capacity.MaintenanceScheduled {
		unless = ", unless its pool's disruption is paused or maxTerminationsPerMinute delays it"
	}
	if x.Unconfirmed {
		doubt = " (so says a message on the interruption queue, which EC2 has not confirmed)"
	}
	i.cfg.Recorder.Eventf(claim, nil, corev1.EventTypeWarning, string(x.Kind), "Check", "The drain of the node begins at %s at the latest%s: %s%s",
		at.UTC().Format(time.RFC3339), unless, means.why, doubt)
	klog.FromContext(ctx).Info("An instance is interrupted", "nodeClaim", claim.Name, "node", claim.Status.NodeName, "instance", x.InstanceID, "kind", x.Kind, "drainBy", at)
	i.cfg.Changed()
	return nil
}

// supersedes reports whether an interruption is more urgent than the one that is recorded: maintenance waits for a paused pool and for the brake, and the
// others don't. If both wait, or neither does, the earlier one counts.
func supersedes(at time.Time, kind capacity.InterruptionKind, before time.Time, recorded capacity.InterruptionKind) bool {
	if waits, waited := kind == capacity.MaintenanceScheduled, recorded == capacity.MaintenanceScheduled; waits != waited {
		return waited
	}
	return at.Before(before)
}

// drainBy returns until when the node may wait for replacement capacity. A node that isn't initialized has no running pods.
func (i *Recorder) drainBy(claim *karpv1.NodeClaim, x capacity.Interruption) time.Time {
	now := i.cfg.Clock.Now()
	switch {
	case x.Kind == capacity.MachineStopping || x.Kind == capacity.MachineTerminating || !claim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeInitialized).IsTrue():
		return now
	case x.Kind == capacity.MaintenanceScheduled && (x.Ends.IsZero() || x.Ends.Add(-drainFor).After(now.Add(i.cfg.LeadMost))):
		return now.Add(i.cfg.LeadMost) // often days ahead, but waiting gains nothing
	}
	if at := x.Ends.Add(-drainFor); at.After(now) {
		return at
	}
	return now
}

// recommend tells that EC2 recommends to leave an instance's capacity, and records it if the pool asks for that. Recommendations are repeated; the
// first one counts.
func (i *Recorder) recommend(ctx context.Context, claim *karpv1.NodeClaim) error {
	i.cfg.Recorder.Eventf(claim, nil, corev1.EventTypeNormal, string(capacity.SpotRebalance), "Check", "EC2 may take the instance's spot capacity back soon")
	pool := &karpv1.NodePool{}
	if err := i.cfg.Claims.Get(ctx, client.ObjectKey{Name: claim.Labels[karpv1.NodePoolLabelKey]}, pool); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("reading the NodePool of NodeClaim %s: %w", claim.Name, err)
	}
	if asked, err := rebalance.Asked(pool); err != nil || !asked { // what can't be read is reported when the pool is looked at
		return nil
	}
	i.cfg.Leaving(claim)
	if _, known := rebalance.Recommended(claim, i.cfg.Clock.Now()); known {
		return nil
	}
	if err := i.annotate(ctx, claim, objects.AnnotationRebalanceRecommended, i.cfg.Clock.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("EC2 recommends to leave an instance's spot capacity", "nodeClaim", claim.Name, "node", claim.Status.NodeName)
	i.cfg.Changed()
	return nil
}

// annotate records something on this claim, and on no other of its name.
func (i *Recorder) annotate(ctx context.Context, claim *karpv1.NodeClaim, key, value string) error {
	body := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, claim.UID, key, value)
	if err := i.cfg.Claims.Patch(ctx, claim, client.RawPatch(types.MergePatchType, []byte(body))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("noting an interruption on NodeClaim %s: %w", claim.Name, err)
	}
	return nil
}
