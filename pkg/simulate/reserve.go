package simulate

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// reservation is a pod for which Reserve of the profile's counting plugins (function counting) was called.
type reservation struct {
	by    *filters
	state fwk.CycleState
	step  capacity.Step
}

// counting returns a profile's out-of-tree plugins that filter and have a Reserve, for example a quota that decides in PreFilter by
// what it has counted in Reserve. built are the simulation's own plugins, so that the running ones are never called for a trial.
func counting(reserve []string, built map[string]fwk.Plugin, inTree func(string) bool) []fwk.ReservePlugin {
	var out []fwk.ReservePlugin
	for _, name := range reserve {
		if p, ok := built[name].(fwk.ReservePlugin); ok && !inTree(name) {
			out = append(out, p)
		}
	}
	return out
}

// reserve calls Reserve of the counting plugins for a placed pod, as a scheduling cycle would. The pod has a different UID: informers
// report the real pod to the same plugin when it is bound, and undoing the trial must not undo that.
func (t *trial) reserve(ctx context.Context, by *filters, state fwk.CycleState, step capacity.Step) *verdict {
	if len(by.counting) == 0 {
		return nil
	}
	pod := *step.Pod
	pod.UID = types.UID(fmt.Sprintf("%s-trial-%d", pod.UID, len(t.reserved)))
	step.Pod = &pod
	r := reservation{by: by, state: state, step: step}
	for _, p := range by.counting {
		if s := p.Reserve(ctx, state, &pod, step.Node); !s.IsSuccess() {
			r.undo(ctx)
			refused := verdictOf(s)
			refused.plugin = p.Name()
			return refused
		}
	}
	t.reserved = append(t.reserved, r)
	return nil
}

// promise calls reserve for a pod that has its place already: it is being bound, or an earlier plan has reserved its capacity. If a plugin
// refuses, that is only logged.
func (t *trial) promise(ctx context.Context, by *filters, state fwk.CycleState, step capacity.Step) {
	if refused := t.reserve(ctx, by, state, step); refused != nil {
		klog.FromContext(ctx).V(3).Info("A plugin refuses to count a pod that has its place already", "pod", klog.KObj(step.Pod),
			"node", step.Node, "plugin", refused.plugin, "reason", refused.reason)
	}
}

// assumed calls reserve for the pods that the snapshot shows on a node and the informers don't yet: they are being bound, and the counting
// plugins learn of a binding from the informers only.
func (t *trial) assumed(ctx context.Context) {
	if !t.world.counts() {
		return
	}
	for _, info := range t.world.list {
		for _, p := range info.GetPods() {
			pod := p.GetPod()
			by := t.world.of(pod)
			if known, err := by.pods.Pods(pod.Namespace).Get(pod.Name); err == nil && known.UID == pod.UID && known.Spec.NodeName == "" {
				t.promise(ctx, by, framework.NewCycleState(), capacity.Step{Pod: pod, Node: info.Node().Name})
			}
		}
	}
}

// counts reports whether any profile has plugins that count in Reserve.
func (w *World) counts() bool {
	if len(w.first.counting) > 0 {
		return true
	}
	for _, f := range w.others {
		if len(f.counting) > 0 {
			return true
		}
	}
	return false
}

// undo calls Unreserve for everything that was reserved.
func (t *trial) undo(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, r := range slices.Backward(t.reserved) {
		r.undo(ctx)
	}
	t.reserved = nil
}

func (r reservation) undo(ctx context.Context) {
	for _, p := range slices.Backward(r.by.counting) {
		p.Unreserve(ctx, r.state, r.step.Pod, r.step.Node)
	}
}
