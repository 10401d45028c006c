package binder

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
)

// GateName is the name of the plugin in profiles.
const GateName = "BinderGate"

// Gate keeps a pod out of the scheduling queue from the time it becomes demand until its node is usable, so that it uses no scheduling
// cycles. It belongs to Binder, but is a plugin of its own because it registers no events. If Binder gated the pods, the queue would ask
// Binder about each gated pod on each new Node, under the queue's lock: a thousand times about each of 100,000 pods when a thousand Nodes
// appear. The ledger opens gates by having the pods activated. Profiles with Binder get this plugin at start-up; it need not be named.
type Gate struct {
	ledger  GateLedger
	class   Classifier
	waiting Waiting
}

var (
	_ fwk.PreEnqueuePlugin  = &Gate{}
	_ fwk.EnqueueExtensions = &Gate{}
)

// GateLedger is what the gate asks of the ledger. No method waits or calls the scheduling queue, whose lock the caller holds.
type GateLedger interface {
	Gated(pod *corev1.Pod) (closed, held bool)
	Adopt(ref capacity.PodRef, c *capacity.Class) bool
	Gate(uid types.UID) (closed bool, why string)
}

// Waiting is told of each pod that the gate keeps out of the queue, possibly many times. It returns at once.
type Waiting interface {
	Add(pod *corev1.Pod)
}

// NewGate returns the factory of the plugin. It takes no arguments.
func NewGate(l GateLedger, newClassifier func(fwk.Handle) Classifier, waiting Waiting) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		if err := pluginargs.Decode(obj, GateName+"Args", &struct{}{}); err != nil {
			return nil, fmt.Errorf("profile %q: %s takes no arguments: %w", h.ProfileName(), GateName, err)
		}
		return &Gate{ledger: l, class: newClassifier(h), waiting: waiting}, nil
	}
}

// Name returns the plugin's name.
func (g *Gate) Name() string { return GateName }

// gated is PreEnqueue's answer where the exact reason would not be logged.
const gated = "capacity for the pod is being planned or launched"

// PreEnqueue rejects the pod while its gate is closed. A pod for which capacity was reserved before it existed gets that capacity here, and so waits
// without a scheduling cycle. The queue calls PreEnqueue under its lock, also for all gated pods at once when it looks again at those that have waited
// for long. It only logs the reason, which takes longer to find the more pods of the class wait, so the reason is left out where it would not be
// logged.
func (g *Gate) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	closed, held := g.ledger.Gated(pod)
	if held {
		closed = g.adopt(pod)
	}
	if !closed {
		return nil
	}
	g.waiting.Add(pod)
	if klog.FromContext(ctx).V(4).Enabled() {
		if closed, why := g.ledger.Gate(pod.UID); closed {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
		}
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, gated)
}

// adopt gives the pod capacity that is reserved for its owner's next pods, if there is some that suits it, and reports whether the pod has to wait for
// it. The queue may still have a pod that has ended or been bound: the ledger adopts none of which it has heard that, and hears of the others in a
// moment. A pod that has no class yet, because the claim of its volume isn't known, may be adopted in its scheduling cycle (Binder.PreFilter).
func (g *Gate) adopt(pod *corev1.Pod) (closed bool) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || objects.Ended(pod) || len(pod.Spec.SchedulingGates) > 0 || objects.OfDaemonSet(pod) {
		return false
	}
	class, err := g.class.Class(pod)
	if err != nil {
		return false
	}
	g.ledger.Adopt(capacity.RefOf(pod), class)
	closed, _ = g.ledger.Gated(pod)
	return closed
}

// EventsToRegister registers no event. Without this method the queue would assume that the plugin is interested in all of them.
func (g *Gate) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) { return nil, nil }
