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
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// offers gives capacity that has appeared to pods that wait for instances in flight. It belongs to the planner's goroutine.
type offers struct {
	reservations *reservations.Ledger
	pending      *pending.Pods
	viewer       *viewer
	world        World
	planner      provisioning.Planner // for plans without pools; the planner of rounds would forget its catalog over them
	nodes        NodeBuilder
	committer    *committer
	triggers     *Triggers
	options      capacity.Options
}

// NodeChanged is called when the scheduler's cache has added or updated a Node; before is nil if it was added. A Node that was deleted and
// created again under its name while the watch was interrupted is reported as an update, too.
func (tr *NodeTracker) NodeChanged(before, now *corev1.Node) {
	if before != nil && before.UID != now.UID {
		tr.NodeUncached(before)
		before = nil
	}
	tr.NodeCached(now)
	if roomier(before, now) {
		tr.triggers.roomAppeared(!comingUp(before, now) && !recovered(before, now))
	}
}

// recovered reports whether the node has only lost health taints, of a kubelet that was late to report, say. Its capacity was there before.
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

// comingUp reports whether the change belongs to the start of a managed node: it wasn't initialized before.
func comingUp(before, now *corev1.Node) bool {
	return capacity.Managed(now) && (before == nil || before.Labels[labelInitialized] != "true")
}

// roomier reports whether pods may fit on the node that did not before.
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

// offer gives pods that wait for an instance capacity on nodes that can take them now, before newer demand is planned: higher priorities
// first, then in the order of their plans. A pod that gets capacity gives up its reservation; a claim that no pod needs any more and that
// was not launched is cancelled.
func (o *offers) offer(ctx context.Context) {
	if !o.triggers.room.Swap(false) {
		return
	}
	freed := o.triggers.freed.Swap(false)
	var waiting []ledger.Waiting
	o.reservations.Read(func(l ledger.Reader) { waiting = l.Releasable(freed) })
	if len(waiting) == 0 {
		return
	}
	v, err := o.viewer.view(ctx, nil)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not take a view of the cluster; pods wait for their instances")
		return
	}
	v.Pools, v.Demand = nil, demand(waiting)
	for i, n := range v.Nodes {
		if n.InFlight { // for pods that are planned there, no better than what they have
			shut := *n
			shut.Closed = true
			v.Nodes[i] = &shut
		}
	}
	d := provisioning.Decider{Planner: o.planner, World: o.world, Nodes: o.nodes, Pod: o.pending.Get}
	plan, err := d.Decide(ctx, &v.Scene, capacity.Options{IgnorePreferences: o.options.IgnorePreferences})
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "New capacity could not be offered to waiting pods")
		}
		return
	}
	if len(plan.Placements) == 0 {
		return
	}
	o.committer.bookAs(ctx, v, plan, nil, func(l *ledger.Ledger, _ string, placements []capacity.Placement, _ time.Time) {
		l.Reassign(placements, freed) // no pools, no new nodes
	})
	klog.FromContext(ctx).V(2).Info("Waiting pods get new capacity", "pods", len(plan.Placements), "waiting", len(waiting))
}
