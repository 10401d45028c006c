package binder

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
)

// GateName is the name of the plugin in profiles.
const GateName = "BinderGate"

// Gate keeps a pod out of the scheduling queue from the time it becomes demand until its node is usable, so that it uses no scheduling
// cycles. It belongs to Binder, but is a plugin of its own because it registers no events. If Binder gated the pods, the queue would ask
// Binder about each gated pod on each new Node, under the queue's lock: a thousand times about each of 100,000 pods when a thousand Nodes
// appear. The ledger opens gates by having the pods activated. Profiles with Binder get this plugin at start-up; it need not be named.
type Gate struct {
	ledger Ledger
}

var (
	_ fwk.PreEnqueuePlugin  = &Gate{}
	_ fwk.EnqueueExtensions = &Gate{}
)

// NewGate returns the factory of the plugin. It takes no arguments.
func NewGate(l Ledger) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		if err := pluginargs.Decode(obj, GateName+"Args", &struct{}{}); err != nil {
			return nil, fmt.Errorf("profile %q: %s takes no arguments: %w", h.ProfileName(), GateName, err)
		}
		return &Gate{ledger: l}, nil
	}
}

// Name returns the plugin's name.
func (g *Gate) Name() string { return GateName }

// gated is PreEnqueue's answer where the exact reason would not be logged.
const gated = "capacity for the pod is being planned or launched"

// PreEnqueue rejects the pod while its gate is closed. The queue calls it under its lock, also for all gated pods at once when it looks again at
// those that have waited for long. It only logs the reason, which takes longer to find the more pods of the class wait, so the reason is left
// out where it would not be logged.
func (g *Gate) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	if !g.ledger.Gated(pod.UID) {
		return nil
	}
	if klog.FromContext(ctx).V(4).Enabled() {
		if closed, why := g.ledger.Gate(pod.UID); closed {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
		}
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, gated)
}

// EventsToRegister registers no event. Without this method the queue would assume that the plugin is interested in all of them.
func (g *Gate) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) { return nil, nil }
