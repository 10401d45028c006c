package launch

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// RoomAppeared tells the motor that a node has more room than it had: a pod has ended, a node has come, grown, or takes pods
// again. Pods that wait for a machine may have that room instead. Safe from any goroutine; returns at once.
func (m *Motor) RoomAppeared() { m.roomAppeared(true) }

// roomAppeared tells of room. Room that was freed is worth leaving a machine that is on its way; what a machine of ours turns
// out to have beyond what was planned for it, while it comes up, is not: its siblings will be up in a moment, and would have
// come for nobody.
func (m *Motor) roomAppeared(freed bool) {
	if m.reservations.Idle() {
		return
	}
	waits := false
	m.reservations.read(func(l *ledger.Ledger) { waits = l.Waits(freed) })
	if waits {
		if freed {
			m.freed.Store(true)
		}
		m.room.Store(true)
		m.replan()
	}
}

// NodeChanged is called when the scheduler's cache has taken in a Node; before is nil when it is new there. A Node that was deleted
// and made again under its name while the watch was interrupted comes as a change, too.
func (m *Motor) NodeChanged(before, now *corev1.Node) {
	if before != nil && before.UID != now.UID {
		m.NodeUncached(before)
		before = nil
	}
	m.NodeCached(now)
	if roomier(before, now) {
		m.roomAppeared(!comingUp(before, now) && !recovered(before, now))
	}
}

// recovered says that all the change brought is the end of a node's illness: a kubelet that was late to report, say. What room
// it has was there before.
func recovered(before, now *corev1.Node) bool {
	if before == nil {
		return false
	}
	well := *before
	well.Spec.Taints = slices.DeleteFunc(slices.Clone(before.Spec.Taints), func(t corev1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
	return !roomier(&well, now)
}

// comingUp says that the change belongs to the rise of a managed node.
func comingUp(before, now *corev1.Node) bool {
	return capacity.Managed(now) && (before == nil || before.Labels[labelInitialized] != "true")
}

// roomier says that pods may fit on the node that did not before.
func roomier(before, now *corev1.Node) bool {
	if before == nil {
		return true
	}
	if before.Spec.Unschedulable && !now.Spec.Unschedulable || len(before.Spec.Taints) > len(now.Spec.Taints) ||
		before.Labels[labelInitialized] != now.Labels[labelInitialized] {
		return true
	}
	for name, q := range now.Status.Allocatable {
		if old := before.Status.Allocatable[name]; q.Cmp(old) > 0 {
			return true
		}
	}
	return false
}

// offer gives pods that wait for a machine room on nodes that can take them now, before the demand of those that came after
// them is looked at: higher priorities first, then in the order of their plans. Who is served gives up the room that was
// planned for it; a claim that nobody needs any more and that was not launched is cancelled.
func (m *Motor) offer(ctx context.Context) {
	if !m.room.Swap(false) {
		return
	}
	freed := m.freed.Swap(false)
	var waiting []ledger.Waiting
	m.reservations.read(func(l *ledger.Ledger) { waiting = l.Releasable(freed) })
	if len(waiting) == 0 {
		return
	}
	v, err := m.view(ctx, nil)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The cluster could not be looked at; pods wait for their machines")
		return
	}
	v.Pools, v.Demand = nil, demand(waiting)
	for i, n := range v.Nodes {
		if n.InFlight { // for the pods whose room is planned there, it is no better than what they have
			shut := *n
			shut.Closed = true
			v.Nodes[i] = &shut
		}
	}
	d := Decider{Planner: m.rooms, World: m.world, Nodes: m.nodes, Pod: m.pending.Get}
	plan, err := d.Decide(ctx, &v.Scene, capacity.Options{IgnorePreferences: m.cfg.Plan.IgnorePreferences})
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Room that has appeared could not be offered to waiting pods")
		}
		return
	}
	if len(plan.Placements) == 0 {
		return
	}
	m.bookAs(ctx, v, plan, nil, func(l *ledger.Ledger, _ string, placements []capacity.Placement, _ time.Time) {
		l.Reassign(placements, freed) // no pools, no new nodes
	})
	klog.FromContext(ctx).V(2).Info("Waiting pods get room that has appeared", "pods", len(plan.Placements), "waiting", len(waiting))
}
