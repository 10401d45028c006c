package simulate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// trial is one run of Verify.
type trial struct {
	world   *World
	overlay *overlay
	near    *surroundings // of the nodes of all steps
	alone   bool          // steps that the filters accept are not placed (Trial.Alone)
	// coming are hypothetical nodes, for which drivers have not published their capacity yet.
	coming  map[string]*corev1.Node
	classes map[classKey]*class
	// infos are the parsed pods by class, before they get a node.
	infos map[classKey]*framework.PodInfo
	// placed are the accepted steps, in order; pods that were there from the start are not among them.
	placed []placement
	// reserved are the pods for which Reserve was called, including those that were there from the start.
	reserved []reservation
}

type placement struct {
	pod  *framework.PodInfo
	node *framework.NodeInfo
}

// Verify checks the steps in order against the profile's filters on the last Refresh's snapshot, with all hypothetical nodes and all
// pods with reserved capacity present from the start. Rejections are in the order of the steps; none means that kube-scheduler would
// accept the plan as it is, or in another order if that is allowed. The same snapshot and trial give the same answer, and Verify leaves nothing behind.
//
// If a plugin fails on a step, the step is rejected. An error means that the trial as a whole could not be checked: ctx ended, or the
// filters' state is not in the expected form.
func (w *World) Verify(ctx context.Context, in capacity.Trial) ([]capacity.Rejection, error) {
	t := &trial{
		world:   w,
		overlay: w.newOverlay(in.Nodes),
		alone:   in.Alone,
		coming:  map[string]*corev1.Node{},
		classes: map[classKey]*class{},
		infos:   map[classKey]*framework.PodInfo{},
	}
	t.near = surroundingsOf(t.overlay, in.Steps)
	for _, n := range in.Nodes {
		if !n.Instead {
			t.coming[n.Node.Name] = n.Node
		}
	}
	w.lister.SharedLister = t.overlay
	defer func() { w.lister.SharedLister = w.snapshot }()
	defer t.undo(ctx)
	w.devices.begin(in.Nodes)
	defer w.devices.end()

	t.assumed(ctx)
	logger := klog.FromContext(ctx)
	for _, p := range in.Promised {
		if node := t.overlay.writable(p.Node); node != nil {
			t.promiseDevices(ctx, p, node)
			t.overlay.place(t.podInfo(p), node)
			t.promise(ctx, w.of(p.Pod), framework.NewCycleState(), p)
		} else {
			logger.V(3).Info("Promised capacity is on a node that doesn't exist", "pod", klog.KObj(p.Pod), "node", p.Node)
		}
	}
	steps := make([]int, len(in.Steps))
	for i := range steps {
		steps[i] = i
	}
	for {
		rejections, err := t.tryAll(ctx, in.Steps, steps)
		if err != nil || !in.AnyOrder || len(rejections) == 0 || len(rejections) == len(steps) {
			return rejections, err
		}
		steps = steps[:0]
		for _, r := range rejections {
			steps = append(steps, r.Step)
		}
	}
}

// tryAll tries some of the steps in their order, and returns those that are refused.
func (t *trial) tryAll(ctx context.Context, all []capacity.Step, some []int) ([]capacity.Rejection, error) {
	var out []capacity.Rejection
	for _, i := range some {
		step := all[i]
		refused, err := t.try(ctx, step)
		if err != nil {
			return nil, fmt.Errorf("verifying pod %s on node %s: %w", klog.KObj(step.Pod), step.Node, err)
		}
		if refused != nil {
			klog.FromContext(ctx).V(4).Info("Filters refuse a planned pod", "pod", klog.KObj(step.Pod), "node", step.Node, "plugin", refused.plugin, "reason", refused.reason)
			out = append(out, capacity.Rejection{Step: i, Plugin: refused.plugin, Reason: refused.reason})
		}
	}
	return out, nil
}

// try asks the filters about one step and places its pod if they accept it.
func (t *trial) try(ctx context.Context, step capacity.Step) (*verdict, error) {
	node := t.overlay.writable(step.Node)
	if node == nil {
		return &verdict{reason: fmt.Sprintf("node %q doesn't exist", step.Node)}, nil
	}
	if t.world.devices.uses(step.Pod) {
		var known bool
		if step, known = t.world.devices.standIn(step, true); !known {
			return &verdict{reason: "what the pod's resourceclaims ask for isn't known"}, nil
		}
	}
	c, refused, err := t.filter(ctx, step, node)
	if err != nil || refused != nil {
		return refused, err
	}
	if t.alone {
		return nil, nil
	}
	if refused := t.reserve(ctx, c.by, c.state, step); refused != nil {
		return refused, nil
	}
	if refused := t.allocate(ctx, c.by, c.state, step); refused != nil {
		return refused, nil
	}
	pod := t.podInfo(step)
	t.overlay.place(pod, node)
	t.placed = append(t.placed, placement{pod, node})
	return nil, nil
}

// filter asks the filters about one step. As in a scheduling cycle, capacity that preemption has freed for a nominated pod is not given to others.
func (t *trial) filter(ctx context.Context, step capacity.Step, node *framework.NodeInfo) (*class, *verdict, error) {
	if by := t.world.of(step.Pod); len(by.framework.NominatedPodsForNode(step.Node)) > 0 {
		// The framework itself adds these pods to the class's state, which is right only for what PreFilter has just found on all nodes.
		c, err := t.preFilterAll(ctx, step.Pod)
		if err != nil {
			return nil, nil, err
		}
		return c, t.ask(ctx, c, step.Pod, node), ctx.Err()
	}
	c, err := t.class(ctx, step)
	if err != nil {
		return nil, nil, err
	}
	refused := t.ask(ctx, c, step.Pod, node)
	if refused != nil && c.cautious && refused.plugin == names.PodTopologySpread {
		if c, err = t.preFilterAll(ctx, step.Pod); err != nil {
			return nil, nil, err
		}
		t.classes[t.world.keyOf(step)] = c
		refused = t.ask(ctx, c, step.Pod, node)
	}
	return c, refused, ctx.Err()
}

// ask returns the filters' answer to a pod of the class; nil: they accept it.
func (t *trial) ask(ctx context.Context, c *class, pod *corev1.Pod, node *framework.NodeInfo) *verdict {
	name := node.Node().Name
	if c.refused != nil {
		return c.refused
	}
	if c.nodes != nil && !c.nodes.Has(name) {
		return &c.outside
	}
	t.world.trying = t.coming[name]
	defer func() { t.world.trying = nil }()
	if status := c.by.framework.RunFilterPluginsWithNominatedPods(ctx, c.state, pod, node); !status.IsSuccess() {
		return verdictOf(status)
	}
	return nil
}

// class returns the up-to-date class of a step.
func (t *trial) class(ctx context.Context, step capacity.Step) (*class, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := t.world.keyOf(step)
	if c, ok := t.classes[key]; ok {
		if current, err := t.catchUp(ctx, c); err != nil {
			return nil, err
		} else if current {
			return c, nil
		}
	}
	c, err := t.preFilter(ctx, step.Pod)
	if err != nil {
		return nil, err
	}
	t.classes[key] = c
	return c, nil
}

// podInfo returns the step's pod as it will be once bound.
func (t *trial) podInfo(step capacity.Step) *framework.PodInfo {
	key := t.world.keyOf(step)
	parsed, ok := t.infos[key]
	if !ok {
		// Like the scheduler's cache, ignore terms that can't be parsed.
		parsed, _ = framework.NewPodInfo(step.Pod)
		parsed.CalculateResource() // cached in parsed, so that the copies needn't compute it
		t.infos[key] = parsed
	}
	pod := *step.Pod
	pod.Spec.NodeName = step.Node
	// The pod may be a terminating one that represents a class of pods that aren't terminating.
	pod.DeletionTimestamp = nil
	info := *parsed
	info.Pod = &pod
	return &info
}
