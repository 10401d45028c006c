package binder

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
)

// InitializingNodesName is the name of the plugin in profiles.
const InitializingNodesName = "InitializingNodes"

// InitializingNodes is for profiles without Binder in a scheduler that has Binder in another profile. All profiles read Nodes from one
// informer, whose transform hides the taints of initializing nodes, because Binder decides which pods may be bound there. For pods of
// profiles without Binder this plugin does so: it rejects nodes whose hidden taints they don't tolerate, and protects capacity that is
// reserved for others. No node is launched for these pods, and nothing is planned for them.
type InitializingNodes struct {
	binder Binder
	hidden HiddenTaints
}

// HiddenTaints returns the taints of a Node that the scheduler's informer doesn't show.
type HiddenTaints func(*corev1.Node) []corev1.Taint

var (
	_ fwk.EnqueueExtensions = &InitializingNodes{}
	_ fwk.SignPlugin        = &InitializingNodes{}
	_ fwk.PreFilterPlugin   = &InitializingNodes{}
	_ fwk.FilterPlugin      = &InitializingNodes{}
	_ fwk.ReservePlugin     = &InitializingNodes{}
	_ fwk.PostBindPlugin    = &InitializingNodes{}
)

// NewInitializingNodes returns the factory of the plugin. It takes no arguments.
func NewInitializingNodes(l Ledger, newClassifier func(fwk.Handle) Classifier, hidden HiddenTaints) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		if err := pluginargs.Decode(obj, InitializingNodesName+"Args", &struct{}{}); err != nil {
			return nil, fmt.Errorf("profile %q: %s takes no arguments: %w", h.ProfileName(), InitializingNodesName, err)
		}
		return &InitializingNodes{binder: Binder{ledger: l, class: newClassifier(h), handle: h}, hidden: hidden}, nil
	}
}

// Name returns the plugin's name.
func (g *InitializingNodes) Name() string { return InitializingNodesName }

// EventsToRegister names what can end a rejection: a change of the node, of its CSI drivers or their storage, and the end of a pod. When
// hidden taints go, the taints that the scheduler sees stay the same; but the labels, the conditions or the annotation that holds the
// hidden taints change.
func (g *InitializingNodes) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeTaint | fwk.UpdateNodeLabel | fwk.UpdateNodeAnnotation},
			QueueingHintFn: g.afterNode},
		{Event: fwk.ClusterEvent{Resource: fwk.CSINode, ActionType: fwk.Add | fwk.Update}},
		{Event: fwk.ClusterEvent{Resource: fwk.CSIStorageCapacity, ActionType: fwk.Add}},
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}},
	}, nil
}

// afterNode decides from the Node as it is now, since the pod may be rejected for more than its taints.
func (g *InitializingNodes) afterNode(_ klog.Logger, pod *corev1.Pod, _, now any) (fwk.QueueingHint, error) {
	if node, ok := now.(*corev1.Node); ok && capacity.Untolerated(pod.Spec.Tolerations, g.hidden(node)) != nil {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// SignPod keeps the scheduler's batching; like Binder's, Filter depends on the pod's class.
func (g *InitializingNodes) SignPod(ctx context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	signed, status := g.binder.SignPod(ctx, pod)
	return append(signed, fwk.SignFragment{Key: fwk.TolerationsSignerName, Value: fwk.TolerationsSigner(pod)}), status
}

// PreFilter prepares what Filter asks the ledger. It never returns Skip: a node may have hidden taints that the ledger doesn't know of
// yet.
func (g *InitializingNodes) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if g.binder.ledger.Unwatched() {
		return nil, nil
	}
	class, err := g.binder.class.Class(pod)
	if err != nil {
		class = capacity.Unplannable(pod, err)
	}
	c := &cycle{ask: ledger.Ask{UID: pod.UID, Class: class, DaemonSet: objects.OfDaemonSet(pod)}}
	if !c.ask.DaemonSet {
		c.ask.Apart = g.binder.ledger.Apart(pod.UID, class, true)
	}
	state.Write(InitializingNodesName, c)
	return nil, nil
}

// PreFilterExtensions returns nil: what other pods do on a node changes nothing in the ledger.
func (g *InitializingNodes) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter rejects nodes as TaintToleration would if it saw all of their taints, so that preemption leaves them alone, too, and protects
// capacity that is reserved for pods planned for the node.
func (g *InitializingNodes) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	o := node.Node()
	if t := capacity.Untolerated(pod.Spec.Tolerations, g.hidden(o)); t != nil {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("node(s) had untolerated taint {%s: %s}", t.Key, t.Value))
	}
	data, err := state.Read(InitializingNodesName)
	if errors.Is(err, fwk.ErrNotFound) {
		return nil // no node was watched when the cycle began
	} else if err != nil {
		return fwk.AsStatus(err)
	}
	if !g.binder.ledger.Watches(o.Name) {
		return nil
	}
	if err := g.binder.ledger.Object(o.Name, &data.(*cycle).ask, amounts{node, g.binder.class}); err != nil {
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return nil
}

// Reserve rejects a node whose removal has begun since Filter, and tells the ledger that a pod is being bound there.
func (g *InitializingNodes) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	return g.binder.Reserve(ctx, state, pod, node)
}

// Unreserve tells the ledger that the pod was not bound.
func (g *InitializingNodes) Unreserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	g.binder.Unreserve(ctx, state, pod, node)
}

// PostBind tells the ledger that the pod is bound.
func (g *InitializingNodes) PostBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	g.binder.PostBind(ctx, state, pod, node)
}
