package binder

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
)

// GateName is the name of the plugin in profiles.
const GateName = "BinderGate"

// Gate keeps pods that are planned for, or about to be, out of the scheduling queue until their node is there: they burn no cycles. It is
// a part of Binder, and a plugin of its own because of its events: it has none. The queue asks the plugin that has gated a pod about
// every event that this plugin has registered, under the queue's lock: Binder's new Nodes, a thousand of them for each of 100,000 pods.
// Gates are opened by the ledger, which has the pods activated. Profiles with Binder get it at start-up; nobody has to name it.
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

// Name of the plugin.
func (g *Gate) Name() string { return GateName }

// PreEnqueue is the gate.
func (g *Gate) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if closed, why := g.ledger.Gate(pod.UID); closed {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	return nil
}

// EventsToRegister names none. Without the method the queue would take the plugin to be interested in all of them.
func (g *Gate) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) { return nil, nil }
