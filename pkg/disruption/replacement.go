package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/disruption/duetime"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
)

const (
	// replaceEvery is how often a pass checks whether the replacement capacity is there.
	replaceEvery = 2 * time.Second
	// causeEvery is how often a pass checks whether it is known why an instance has ended.
	causeEvery = time.Second
)

// heldFor is how long capacity stays reserved for the pods of a node without a pass (Replacements.Keep).
const heldFor = time.Minute

// Replacements plans capacity for the pods of nodes that have to end.
type Replacements interface {
	// Replace asks for capacity for these pods on other nodes, as if they had already left theirs. It returns at once. ready means that all
	// of it is available on initialized nodes; otherwise the error says what is missing, or is nil while nodes are being launched. When called
	// again, it plans for what is missing. avoid lists nodes that the pods would soon have to leave again.
	Replace(node string, moving []*corev1.Pod, avoid []string) (ready bool, err error)
	// Keep extends the reservations for the pods that will replace the node's pods by another minute.
	Keep(node string)
	// Forget releases what is left of the reservations.
	Forget(node string)
}

// replacements terminates nodes that have to end. Only the goroutine that makes the passes uses it.
type replacements struct {
	reasons      []reason
	capacity     Replacements
	cordons      *cordons
	terminations *terminations
	moves        *moves
	pods         cache.Indexer
	recorder     events.EventRecorder
	// begun holds the nodes that are being replaced, by the UID of their claims. It may be lost at any moment.
	begun map[string]*replacedNode
	// since says when each node became due, by the UID of its claim; passed is when the last pass was made. They may be lost at any moment.
	since  duetime.Times
	passed time.Time
}

// replacedNode is a node that is being replaced, from its cordon until its claim is gone:
//
//	schedulable -> cordoned, replacement requested: from decision.prepare on
//	cordoned -> claim deleted, node drains:         when the replacement is ready, or at decision.at
//	cordoned -> schedulable:                        when the pool is paused, or the node need not end any more
type replacedNode struct {
	node    string
	missing error // what was last missing for its replacement
}

// pass terminates the nodes that have to end. Capacity for their pods is prepared before that, so that a drain moves pods to nodes that
// exist; if it isn't there in time, they are drained all the same. It returns when to run again (0: nothing is near). Disruption budgets
// don't limit this, and neither do pods that ask not to be disrupted: the drain waits for those.
//
// If no pass was made for a while (a pause, another leader), a node that became due meanwhile is not drained at once: from the first pass on it has
// the usual time for its replacement. A node's time begins anew twice at most (package duetime).
func (r *replacements) pass(ctx context.Context, s *cluster) (soon time.Duration, errs []error) {
	now := r.terminations.clock.Now()
	if now.Sub(r.passed) > heldFor {
		r.since.Anew(now) // what was reserved is lost
	}
	there, since := map[string]bool{}, duetime.Times{}
	var due []*decision
	var avoid []string // nodes that will soon be replaced themselves
	for _, m := range s.candidates {
		there[m.uid()] = true
		begun := r.begun[m.uid()]
		d, err := r.decide(m, now)
		errs = append(errs, err)
		if m.node != nil && avoided(m, d, now) {
			avoid = append(avoid, m.node.Name)
		}
		switch {
		case m.claim.DeletionTimestamp != nil || r.terminations.deleted[m.uid()]:
			if begun != nil {
				r.capacity.Keep(begun.node)
			}
		case err != nil:
			if at, known := r.since[m.uid()]; known {
				since[m.uid()] = at
			}
		case d == nil || paused(m) && !d.forced:
			errs = append(errs, r.cancel(ctx, m))
		case now.Before(d.prepare):
			soon = nearer(soon, d.prepare.Sub(now))
			errs = append(errs, r.cancel(ctx, m)) // what it was begun for is over: a node that is unhealthy no longer, say, expires in weeks
		default:
			due = append(due, d)
			since[m.uid()] = r.since.Of(m.uid(), now)
		}
	}
	r.since, r.passed = since, now
	for uid, begun := range r.begun {
		if !there[uid] {
			r.capacity.Forget(begun.node)
			delete(r.begun, uid)
		}
	}
	slices.SortFunc(due, func(a, b *decision) int {
		if d := a.at.Compare(b.at); d != 0 {
			return d
		}
		return strings.Compare(a.claim.Name, b.claim.Name)
	})
	for _, d := range due {
		wait, err := r.advance(ctx, d, avoid, now)
		soon = nearer(soon, wait)
		errs = append(errs, err)
	}
	return soon, errs
}

// decide returns the most urgent decision about the candidate: one that neither a paused pool nor the brake delays, or else the earliest; nil: there
// is none. In a dry run a decision that is carried out comes before one that is only reported.
func (r *replacements) decide(m *candidate, now time.Time) (first *decision, err error) {
	for _, reason := range r.reasons {
		d, err := reason.decide(m, now)
		if err != nil {
			return nil, err
		}
		if d == nil {
			continue
		}
		r.postpone(d, now)
		if first == nil || r.before(d, first) {
			first = d
		}
	}
	return first, nil
}

// postpone gives a node whose end came while no passes were made as much time for its replacement as others have. Otherwise all such nodes would be
// drained at once, without capacity for their pods. A node that the cloud ends isn't postponed, because the cloud doesn't wait, and neither is one of
// a static pool, for which no replacement is prepared.
func (r *replacements) postpone(d *decision, now time.Time) {
	if d.cloud || d.node == nil || d.pool != nil && d.pool.Spec.Replicas != nil {
		return
	}
	if at := r.since.Of(d.uid(), now).At.Add(d.at.Sub(d.prepare)); at.After(d.at) {
		d.at = at
	}
}

// avoided reports whether a decision will end a node so soon that no pods are to be moved there.
func avoided(m *candidate, d *decision, now time.Time) bool {
	return d != nil && (d.forced || !paused(m)) && !now.Before(d.avoid)
}

// ending reports the same as avoided, for the most urgent decision; false if a dry run only reports that decision.
func (r *replacements) ending(m *candidate, now time.Time) (bool, error) {
	d, err := r.decide(m, now)
	return avoided(m, d, now) && (d.cloud || !r.terminations.dryRun), err
}

// before reports whether a decision about a node is more urgent than another.
func (r *replacements) before(d, than *decision) bool {
	switch {
	case d.forced != than.forced:
		return d.forced
	case r.terminations.dryRun && d.cloud != than.cloud:
		return d.cloud
	}
	return d.at.Before(than.at)
}

// advance takes the replacement of one node a step further and returns when to do so again:
//
//  1. Give up emptying it to save money, unless it is being drained for that already.
//  2. Before its time is over: do nothing if it has no pods to be moved (emptiness may terminate it); otherwise
//  3. cordon and taint it, and ask for capacity for its pods.
//  4. When the capacity is there, or the time over, delete its claim, as soon as the brake allows. Until then the capacity stays reserved. If its
//     instance has ended by itself, the deletion waits until it is known why.
func (r *replacements) advance(ctx context.Context, d *decision, avoid []string, now time.Time) (time.Duration, error) {
	if r.terminations.dry(ctx, d) {
		return 0, nil
	}
	if draining, err := r.moves.overtake(ctx, d); err != nil || draining && now.Before(d.at) {
		return replaceEvery, err
	}
	brake, over := r.terminations.brake, !now.Before(d.at)
	if !over || !d.forced && brake.Wait(now) > 0 {
		ready, err := r.prepare(ctx, d, avoid, now)
		if err != nil || !ready && !over {
			return nearer(replaceEvery, d.at.Sub(now)), err
		}
	}
	if r.terminations.waits(ctx, d) {
		return causeEvery, nil
	}
	if !d.forced && (r.terminations.braked(d.candidate) || !brake.Take(now)) {
		return brake.Wait(now), nil
	}
	if begun := r.begun[d.uid()]; over && begun != nil && begun.missing != nil {
		r.recorder.Eventf(d.claim, nil, corev1.EventTypeWarning, reasonNoRoom, "Disrupt", "Draining without replacement capacity for all pods: %v", begun.missing)
	}
	return 0, r.terminations.end(ctx, d)
}

// prepare cordons the node and asks for capacity for its pods. It returns true when the node may be drained.
func (r *replacements) prepare(ctx context.Context, d *decision, avoid []string, now time.Time) (bool, error) {
	if d.node == nil || d.node.DeletionTimestamp != nil || d.node.Labels[karpv1.NodeInitializedLabelKey] != "true" ||
		d.pool != nil && d.pool.Spec.Replicas != nil { // pkg/staticpool launches another node when this one has ended
		return false, nil
	}
	bound, err := pods.OnNode(r.pods, d.node.Name)
	if err != nil {
		return false, err
	}
	moving := slices.DeleteFunc(bound, func(p *corev1.Pod) bool { return !reschedulable(p, now) })
	begun := r.begun[d.uid()]
	if begun == nil {
		r.moves.leave(d.node.Name)
		if len(moving) == 0 && !d.idle {
			return false, nil
		}
		if r.cordons.fence.GiveUpChunks(d.node.Name); !r.cordons.fence.Fence(d.node.Name) {
			return false, nil
		}
		begun = &replacedNode{node: d.node.Name}
		r.begun[d.uid()] = begun
		if len(moving) > 0 {
			r.terminations.event(d.candidate, reasonReplace, fmt.Sprintf("The drain of the node begins at %s at the latest, because %s: capacity for its pods (%d) is being prepared", d.at.UTC().Format(time.RFC3339), d.message, len(moving)))
		}
		klog.FromContext(ctx).V(2).Info("Replacing a node", "node", klog.KObj(d.node), "nodeClaim", d.claim.Name, "pods", len(moving), "reason", d.reason)
	}
	if !disrupted(d.node) {
		if err := r.cordons.nodes.Disrupt(ctx, d.node); err != nil {
			return false, fmt.Errorf("tainting a node that is being replaced: %w", err)
		}
	}
	if len(moving) == 0 {
		return true, nil
	}
	ready, missing := r.capacity.Replace(d.node.Name, moving, avoid)
	if missing != nil && (begun.missing == nil || missing.Error() != begun.missing.Error()) {
		r.recorder.Eventf(d.claim, nil, corev1.EventTypeWarning, reasonNoRoom, "Disrupt", "No replacement capacity for the pods of the node yet: %v", missing)
	}
	begun.missing = missing
	return ready, nil
}

// reschedulable reports whether a drain evicts the pod and its controller will create another one, which needs capacity.
func reschedulable(p *corev1.Pod, now time.Time) bool {
	return pods.Evictable(p, now) && !pods.Daemon(p) && metav1.GetControllerOfNoCopy(p) != nil
}

// leaves reports whether a pod needs another node when the node is emptied. On one that has drifted and has a terminationGracePeriod, pods that
// ask not to be disrupted do, too: they are evicted when that is over.
func leaves(m *candidate, p *corev1.Pod, drifted bool, now time.Time) bool {
	if !drifted || !hasDeadline(m) {
		return reschedulable(p, now)
	}
	return pods.Awaited(p, now) && !pods.Terminating(p) && !pods.Daemon(p) && metav1.GetControllerOfNoCopy(p) != nil
}

// cancel undoes what advance has begun.
func (r *replacements) cancel(ctx context.Context, m *candidate) error {
	begun := r.begun[m.uid()]
	if begun == nil {
		return nil
	}
	r.capacity.Forget(begun.node)
	if m.node != nil {
		if err := r.cordons.nodes.Undisrupt(ctx, m.node); err != nil {
			return fmt.Errorf("uncordoning Node %s: %w", m.node.Name, err)
		}
	}
	r.cordons.fence.Unfence(begun.node)
	delete(r.begun, m.uid())
	return nil
}

// nearer returns the shorter of two waits; 0 is no wait.
func nearer(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
