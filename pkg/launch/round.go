package launch

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// round serves the demand of one burst.
//
//  1. Gather: queued pods and their unscheduled siblings.
//  2. View: snapshot, in-flight nodes, promises, pools, offers, daemons.
//  3. Plan.
//  4. Verify with the real filters; what fails is planned once more without the refused placements, then refused.
//  5. Book the plan: what goes to existing nodes may go at once.
//  6. Launch what has to be bought, in the background.
func (m *Motor) round(ctx context.Context) {
	logger := klog.FromContext(ctx)
	start := m.clock.Now()
	waiting := m.gather()
	if len(waiting) == 0 {
		return
	}
	if why := m.claims.Problem(); why != "" {
		m.refuse(ctx, uidsOf(waiting), "nothing can be launched: "+why, true)
		return
	}
	v, err := m.view(ctx, waiting)
	if err != nil {
		logger.Error(err, "Could not look at the cluster; demand is planned for later")
		m.refuse(ctx, uidsOf(waiting), "the cluster could not be looked at: "+err.Error(), true)
		return
	}
	plan, err := m.verified(ctx, v)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		logger.Error(err, "Could not verify the plan; nothing is launched")
		m.refuse(ctx, uidsOf(waiting), "the plan could not be verified: "+err.Error(), true)
		return
	}
	m.cap(plan, len(v.inFlight))
	waves := m.book(ctx, v, plan)
	logger.V(2).Info("Planned", "pods", len(waiting), "placed", len(plan.Placements), "newNodes", len(plan.Nodes),
		"dollarsPerHour", plan.CostPerHour, "lowerBound", plan.LowerBound, "took", m.clock.Since(start))
	for _, r := range plan.Refused {
		m.refusal(ctx, r)
	}
	for _, w := range waves {
		m.wg.Go(func() { m.launch(ctx, w) })
	}
}

// gather queues unscheduled siblings of queued pods: they are of the same class, so they would fit nowhere either, and
// planning for all of them at once buys better nodes than planning as the scheduler gets to them.
func (m *Motor) gather() []ledger.Waiting {
	var waiting []ledger.Waiting
	m.desk.Step(func(l *ledger.Ledger, now time.Time) {
		waiting = l.QueuedPods()
	})
	classes := map[capacity.ClassKey]bool{}
	for _, w := range waiting {
		classes[w.Class.Key] = true
	}
	if len(classes) == 0 {
		return nil
	}
	for _, pod := range m.pending.all() {
		if !m.desk.free(pod.UID) {
			continue
		}
		if c, err := m.pending.classes.Class(pod); err == nil && classes[c.Key] {
			m.desk.Submit(refOf(pod), c)
		}
	}
	m.desk.read(func(l *ledger.Ledger) { waiting = l.QueuedPods() })
	return waiting
}

func uidsOf(waiting []ledger.Waiting) []types.UID {
	out := make([]types.UID, 0, len(waiting))
	for _, w := range waiting {
		out = append(out, w.Ref.UID)
	}
	return out
}

func (m *Motor) refuse(ctx context.Context, uids []types.UID, why string, retryable bool) {
	var refs []capacity.PodRef
	for _, uid := range uids {
		if pod := m.pending.Get(uid); pod != nil {
			refs = append(refs, refOf(pod))
		}
	}
	m.desk.Step(func(l *ledger.Ledger, now time.Time) { l.Refuse(uids, why, retryable, now) })
	for _, ref := range refs {
		m.events.Pod(ref, corev1.EventTypeWarning, "FailedProvisioning", why)
	}
	klog.FromContext(ctx).V(2).Info("Refused demand", "pods", len(uids), "reason", why, "retryable", retryable)
}

func (m *Motor) refusal(ctx context.Context, r capacity.Refusal) {
	uids := make([]types.UID, 0, len(r.Pods))
	for _, p := range r.Pods {
		uids = append(uids, p.UID)
	}
	m.refuse(ctx, uids, r.Message, r.Retryable)
}

// verified plans and has the plan tried by the real filters. Placements they refuse are forbidden and everything is
// planned once more; those refused then are dropped from the plan, and nodes that would be empty without them.
func (m *Motor) verified(ctx context.Context, v *view) (*capacity.Plan, error) {
	opts := m.cfg.Plan
	for try := 0; ; try++ {
		plan := m.planner.Plan(&v.View, opts)
		rejected, err := m.world.Verify(ctx, m.trial(v, plan))
		if err != nil {
			return nil, fmt.Errorf("running the profile's filters: %w", err)
		}
		if len(rejected) == 0 {
			return plan, nil
		}
		klog.FromContext(ctx).V(3).Info("Filters refuse placements of the plan", "try", try, "refused", len(rejected),
			"first", rejected[0].Reason, "plugin", rejected[0].Plugin)
		if try > 0 {
			drop(plan, rejected)
			return plan, nil
		}
		opts.Forbidden = append(slices.Clone(opts.Forbidden), forbid(plan, rejected)...)
	}
}

// trial is the plan as the real filters are asked about it.
func (m *Motor) trial(v *view, plan *capacity.Plan) capacity.Trial {
	t := capacity.Trial{Promised: v.promised, Nodes: slices.Clone(v.hypothetical)}
	for _, n := range plan.Nodes {
		t.Nodes = append(t.Nodes, capacity.TrialNode{Node: m.nodes.PlannedNode(n, n.ID), Pods: daemonPods(n.ID, n.Daemons)})
	}
	for _, pl := range plan.Placements {
		t.Steps = append(t.Steps, m.step(pl.Class, pl.Pod, pl.Node))
	}
	return t
}

func (m *Motor) step(c *capacity.Class, ref capacity.PodRef, node string) capacity.Step {
	pod := c.Pod
	if live := m.pending.Get(ref.UID); live != nil {
		pod = live
	}
	return capacity.Step{Pod: pod, Class: c.Key, Node: node}
}

func daemonPods(node string, daemons []*capacity.DaemonSet) []*corev1.Pod {
	out := make([]*corev1.Pod, 0, len(daemons))
	for _, d := range daemons {
		pod := d.Class.Pod.DeepCopy()
		pod.Namespace, pod.Name, pod.UID = d.Namespace, d.Name+"-"+node, types.UID(d.Namespace+"/"+d.Name+"/"+node)
		pod.Spec.NodeName = node
		out = append(out, pod)
	}
	return out
}

// forbid rules out what the filters refused: on an existing node that node, on a new one the pool in that zone.
func forbid(plan *capacity.Plan, rejected []capacity.Rejection) []capacity.Forbidden {
	planned := map[string]*capacity.PlannedNode{}
	for _, n := range plan.Nodes {
		planned[n.ID] = n
	}
	seen := map[capacity.Forbidden]bool{}
	var out []capacity.Forbidden
	for _, r := range rejected {
		pl := plan.Placements[r.Step]
		f := capacity.Forbidden{Class: pl.Class.Key, Node: pl.Node, Reason: r.Plugin + ": " + r.Reason}
		if n, ok := planned[pl.Node]; ok {
			f.Node, f.Pool, f.Zone = "", n.Pool.Name, n.Labels[corev1.LabelTopologyZone]
		}
		if !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	return out
}

// drop takes refused placements out of the plan. Their pods are refused, for now.
func drop(plan *capacity.Plan, rejected []capacity.Rejection) {
	byReason := map[string]*capacity.Refusal{}
	var order []string
	refused := map[int]bool{}
	for _, r := range rejected {
		refused[r.Step] = true
		pl := plan.Placements[r.Step]
		if pl.Owner != "" {
			continue
		}
		key := string(pl.Class.Key) + r.Plugin + r.Reason
		if byReason[key] == nil {
			byReason[key] = &capacity.Refusal{Class: pl.Class, Retryable: true,
				Message: fmt.Sprintf("the scheduler's %s filter refuses the pod on every node that could be built for it: %s", r.Plugin, r.Reason)}
			order = append(order, key)
		}
		byReason[key].Pods = append(byReason[key].Pods, pl.Pod)
	}
	used := map[string]bool{}
	kept := plan.Placements[:0]
	for i, pl := range plan.Placements {
		if !refused[i] {
			kept = append(kept, pl)
			used[pl.Node] = true
		}
	}
	plan.Placements = kept
	keepNodes(plan, func(n *capacity.PlannedNode) bool { return used[n.ID] })
	for _, key := range order {
		plan.Refused = append(plan.Refused, *byReason[key])
	}
}

func keepNodes(plan *capacity.Plan, keep func(*capacity.PlannedNode) bool) {
	plan.Nodes = slices.DeleteFunc(plan.Nodes, func(n *capacity.PlannedNode) bool {
		if !keep(n) {
			plan.CostPerHour -= n.Price
			return true
		}
		return false
	})
}

// cap takes nodes out of the plan that would exceed the number of claims in flight. With a node go all pods of its
// groups, since what is left of a group might not be a valid plan.
func (m *Motor) cap(plan *capacity.Plan, inFlight int) {
	over := len(plan.Nodes) + inFlight - m.cfg.MaxInFlight
	if m.cfg.MaxInFlight <= 0 || over <= 0 {
		return
	}
	out := map[string]bool{}
	for _, n := range plan.Nodes[max(0, len(plan.Nodes)-over):] {
		out[n.ID] = true
	}
	groups := map[int]bool{}
	for _, pl := range plan.Placements {
		if out[pl.Node] && pl.Group != 0 {
			groups[pl.Group] = true
		}
	}
	byClass := map[*capacity.Class]*capacity.Refusal{}
	used := map[string]bool{}
	kept := plan.Placements[:0]
	for _, pl := range plan.Placements {
		if !out[pl.Node] && !groups[pl.Group] {
			kept = append(kept, pl)
			used[pl.Node] = true
			continue
		}
		if byClass[pl.Class] == nil {
			byClass[pl.Class] = &capacity.Refusal{Class: pl.Class, Retryable: true,
				Message: fmt.Sprintf("%d nodes are being launched already, the limit is %d (maxClaimsInFlight)", inFlight, m.cfg.MaxInFlight)}
		}
		if pl.Owner == "" {
			byClass[pl.Class].Pods = append(byClass[pl.Class].Pods, pl.Pod)
		}
	}
	plan.Placements = kept
	keepNodes(plan, func(n *capacity.PlannedNode) bool { return used[n.ID] })
	for _, r := range byClass {
		plan.Refused = append(plan.Refused, *r)
	}
}
