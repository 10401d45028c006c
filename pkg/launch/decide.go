package launch

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// DefaultEffort goes into a cheaper plan for each burst, in units of capacity.Options: some tens of milliseconds of the planner's
// goroutine.
const DefaultEffort = 50_000

// Scene is a view and what the verification of a plan needs beside it.
type Scene struct {
	capacity.View
	// Hypothetical are in-flight nodes the scheduler's cache doesn't have.
	Hypothetical []capacity.TrialNode
	// Promised are pods with a slot that the snapshot doesn't show.
	Promised []capacity.Step
}

// Decider plans and has its plans tried by the real filters. It is all there is between a view and a plan that may be
// bought: who wants to know what would be done asks the same decider.
type Decider struct {
	Planner Planner
	World   World // refreshed since the scene was looked at
	Nodes   NodeBuilder
	// Pod is the pod as it is now, or nil when it isn't known: then its class speaks for it.
	Pod func(types.UID) *corev1.Pod
}

// Decide plans and has the plan tried by the real filters. Placements they refuse are forbidden and everything is
// planned once more; those refused then are dropped from the plan, and nodes that would be empty without them.
//
// What is forbidden is forbidden to every pod of a class, so that the second plan may place fewer pods than were accepted of
// the first: of two pods that can't share a volume, say, none. Then the first counts, without what was refused of it.
func (d *Decider) Decide(ctx context.Context, s *Scene, opts capacity.Options) (*capacity.Plan, error) {
	first, rejected, err := d.try(ctx, s, opts)
	if err != nil || len(rejected) == 0 {
		return first, err
	}
	opts.Forbidden = append(slices.Clone(opts.Forbidden), forbid(first, rejected)...)
	drop(first, rejected)
	second, rejected, err := d.try(ctx, s, opts)
	if err != nil {
		return nil, err
	}
	drop(second, rejected)
	if len(first.Placements) > len(second.Placements) {
		return first, nil
	}
	return second, nil
}

// try makes a plan and gives what the real filters refuse of it.
func (d *Decider) try(ctx context.Context, s *Scene, opts capacity.Options) (*capacity.Plan, []capacity.Rejection, error) {
	plan := d.Planner.Plan(&s.View, opts)
	rejected, err := d.World.Verify(ctx, d.trial(s, plan))
	if err != nil {
		return nil, nil, fmt.Errorf("running the profile's filters: %w", err)
	}
	if len(rejected) > 0 {
		klog.FromContext(ctx).V(3).Info("Filters refuse placements of the plan", "refused", len(rejected),
			"first", rejected[0].Reason, "plugin", rejected[0].Plugin)
	}
	return plan, rejected, nil
}

// trial is the plan as the real filters are asked about it.
func (d *Decider) trial(s *Scene, plan *capacity.Plan) capacity.Trial {
	t := capacity.Trial{Promised: s.Promised, Nodes: slices.Clone(s.Hypothetical)}
	for _, n := range plan.Nodes {
		t.Nodes = append(t.Nodes, capacity.TrialNode{Node: d.Nodes.PlannedNode(n, n.ID), Pods: daemonPods(n.ID, n.Daemons)})
	}
	for _, pl := range plan.Placements {
		t.Steps = append(t.Steps, d.step(pl.Class, pl.Pod, pl.Node))
	}
	return t
}

func (d *Decider) step(c *capacity.Class, ref capacity.PodRef, node string) capacity.Step {
	pod := c.Pod
	if live := d.Pod(ref.UID); live != nil {
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

// drop takes refused placements out of the plan. Their pods are refused, for now; the others were tried without them.
func drop(plan *capacity.Plan, rejected []capacity.Rejection) {
	gone := map[int]capacity.Removal{}
	for _, r := range rejected {
		gone[r.Step] = capacity.Removal{RestHolds: true,
			Message: fmt.Sprintf("the scheduler's %s filter refuses the pod on every node that could be built for it: %s", r.Plugin, r.Reason)}
	}
	plan.Remove(gone)
}
