package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
)

// endAllEmpty terminates the nodes that have been empty for long enough, as far as budgets and brake allow, and returns how soon the next
// one will have been (0: none is waiting). If one fails, the others go on; the failed one still counts against the budget, since its
// deletion may have worked.
func (c *Controller) endAllEmpty(ctx context.Context, s *survey) (soon time.Duration, errs []error) {
	due, soon, err := c.empty(s)
	if err != nil {
		return 0, []error{err}
	}
	budgets := c.budgets(s, due)
	for _, m := range due {
		if budgets[m.pool.Name] <= 0 {
			continue
		}
		if c.dry(ctx, m, string(karpv1.DisruptionReasonEmpty), "it is empty") {
			budgets[m.pool.Name]--
			continue
		}
		if c.braked(m) {
			break
		}
		ended, err := c.endEmpty(ctx, m)
		if ended || err != nil {
			budgets[m.pool.Name]--
		}
		errs = append(errs, err)
	}
	return soon, errs
}

// empty finds the nodes that have been without pods of their own for long enough, the longest empty first, and how soon the next one will
// have been (0: none is waiting).
func (c *Controller) empty(s *survey) (due []*machine, soon time.Duration, err error) {
	now := c.clock.Now()
	since := map[*machine]time.Time{}
	for _, m := range s.machines {
		after, ok := emptyAfter(m)
		if !ok || c.going[string(m.claim.UID)] {
			continue
		}
		bound, err := pods.OnNode(c.pods.GetIndexer(), m.node.Name)
		if err != nil {
			return nil, 0, err
		}
		if slices.ContainsFunc(bound, func(p *corev1.Pod) bool { return pods.Occupies(p, now) }) {
			continue
		}
		since[m] = c.quietSince(m)
		if wait := since[m].Add(after).Sub(now); wait > 0 {
			if soon == 0 || wait < soon {
				soon = wait
			}
			continue
		}
		if why := protected(m, bound, now); why != "" {
			c.recorder.Eventf(m.node, m.claim, corev1.EventTypeNormal, reasonBlocked, "Disrupt", "%s", why)
			continue
		}
		due = append(due, m)
	}
	slices.SortFunc(due, func(a, b *machine) int {
		if d := since[a].Compare(since[b]); d != 0 {
			return d
		}
		return strings.Compare(a.claim.Name, b.claim.Name)
	})
	return due, soon, nil
}

// emptyAfter returns how long the pool lets the node be empty; false when it is never terminated for that, or can't be now.
func emptyAfter(m *machine) (time.Duration, bool) {
	switch {
	case m.pool == nil || m.pool.DeletionTimestamp != nil || m.pool.Spec.Replicas != nil || m.pool.Spec.Disruption.ConsolidateAfter.Duration == nil:
		return 0, false
	case paused(m):
		return 0, false
	case m.claim.DeletionTimestamp != nil || condition(m.claim, karpv1.ConditionTypeInitialized) == nil:
		return 0, false
	case m.node == nil || m.node.DeletionTimestamp != nil || disrupted(m.node) || m.node.Labels[karpv1.NodeInitializedLabelKey] != "true":
		return 0, false
	}
	return *m.pool.Spec.Disruption.ConsolidateAfter.Duration, true
}

// quietSince returns when a pod was last bound to the node or left it, or else when the node was initialized. Pod events before this
// process began to watch may not be recorded, so the beginning of the watch counts as one.
func (c *Controller) quietSince(m *machine) time.Time {
	at := condition(m.claim, karpv1.ConditionTypeInitialized).LastTransitionTime.Time
	for _, t := range []time.Time{m.claim.Status.LastPodEventTime.Time, c.nodes.LastPodEvent(m.node.Name), c.started} {
		if t.After(at) {
			at = t
		}
	}
	return at
}

// endEmpty terminates a node that looks empty:
//
//  1. Fence: our own scheduler binds nothing there from now on; Fence refuses when a pod is on its way.
//  2. Taint: neither does any other scheduler, once it has seen the taint.
//  3. Read the node's pods from the API: everything that was bound before 1 and 2 is there.
//  4. Delete the claim.
//
// Any failure removes cordon and taint, except a failed deletion: it may have worked. Then they stay until the next pass knows
// (clearStrays). A pod that another scheduler binds after 3, before it sees the taint, is evicted as in any drain.
func (c *Controller) endEmpty(ctx context.Context, m *machine) (ended bool, err error) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "node", klog.KObj(m.node), "nodeClaim", m.claim.Name)
	if !c.fence.Fence(m.node.Name) {
		logger.V(4).Info("An empty node is about to get pods and stays")
		return false, nil
	}
	back := true
	defer func() {
		if back {
			if e := c.nodes.Undisrupt(ctx, m.node); e != nil && err == nil {
				err = e // the next pass removes the taint (clearStrays)
			}
			c.fence.Unfence(m.node.Name)
		}
	}()
	if err := c.nodes.Disrupt(ctx, m.node); err != nil {
		return false, fmt.Errorf("tainting an empty node: %w", err)
	}
	now := c.clock.Now()
	list, err := c.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", m.node.Name).String(),
	})
	if err != nil {
		return false, fmt.Errorf("listing the pods of node %s: %w", m.node.Name, err)
	}
	var bound []*corev1.Pod
	for i := range list.Items {
		bound = append(bound, &list.Items[i])
	}
	if slices.ContainsFunc(bound, func(p *corev1.Pod) bool { return pods.Occupies(p, now) }) || protected(m, bound, now) != "" {
		logger.V(3).Info("A pod was bound to an empty node at the last moment; the node stays")
		return false, nil
	}
	if !c.brake.Take(now) {
		return false, nil
	}
	back = false
	return true, c.end(ctx, m, string(karpv1.DisruptionReasonEmpty), "it is empty")
}
