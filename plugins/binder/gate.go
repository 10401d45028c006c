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

// Gate keeps pods that are planned for, or about to be, out of the scheduling queue until their node is there, so that they use no
// scheduling cycles. It belongs to Binder, and is a plugin of its own because it registers no events: for each event that the plugin
// which gated a pod has registered, the queue asks that plugin about the pod, under the queue's lock. Binder registers new Nodes: with a
// thousand of them each of 100,000 pods would be asked about a thousand times. The ledger opens gates by having the pods activated.
// Profiles with Binder get this plugin at start-up; it need not be named.
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

// PreEnqueue rejects the pod while its gate is closed.
func (g *Gate) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if closed, why := g.ledger.Gate(pod.UID); closed {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	return nil
}

// EventsToRegister registers no event. Without this method the queue would assume that the plugin is interested in all of them.
func (g *Gate) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) { return nil, nil }
