package provision

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/scheduling"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Name of the plugin in profiles.
const Name = "Provision"

// Provision is first in the PostFilter chain of a profile whose pods may have nodes built for them.
type Provision struct {
	args   *Args
	demand Demand
	class  Classifier
}

var _ fwk.PostFilterPlugin = &Provision{}

// Demand takes down pods that no node can host. Implementations return at once.
type Demand interface {
	// SubmitRefused takes down a pod, and answers whether capacity for it is on its way or may be; if not, why not. by is what the filters
	// said of a node: the plugin and its reason; empty: nothing.
	SubmitRefused(ref capacity.PodRef, c *capacity.Class, by func(node string) (plugin, reason string)) (wait bool, why string)
	// SubmitLater is for a pod that shall be helped by preemption first: it is taken down if that came to nothing.
	SubmitLater(ref capacity.PodRef, c *capacity.Class)
	// Withdraw takes back what was asked for a pod that can't be planned for any more.
	Withdraw(uid types.UID)
}

// Classifier tells a pod's class. An error says why the pod can't be planned for.
type Classifier interface {
	Class(pod *corev1.Pod) (*capacity.Class, error)
}

// noNode has no status of its own: what is said of it is said of every node, as PreFilter plugins do.
const noNode = ""

// New returns the factory of the plugin. The reservations are shared by all profiles; newClassifier is called once per
// profile, before informers start.
func New(demand Demand, newClassifier func(fwk.Handle) Classifier) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, err := DecodeArgs(obj)
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", h.ProfileName(), err)
		}
		return &Provision{args: args, demand: demand, class: newClassifier(h)}, nil
	}
}

// Name of the plugin.
func (p *Provision) Name() string { return Name }

// PostFilter takes the pod down. Success without a node means: wait, capacity is coming, preemption is not needed.
// Unschedulable lets the rest of the chain (preemption) have its try: for DaemonSet pods, which no new node helps, for
// pods that capacity can't help or is refused, and for critical pods, which must not wait for a machine.
func (p *Provision) PostFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, found fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if objects.OfDaemonSet(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a new node does not help a DaemonSet's pod")
	}
	class, err := p.class.Class(pod)
	if err != nil {
		p.demand.Withdraw(pod.UID) // room may be kept for it since before: its volume has gone, say
		return nil, fwk.NewStatus(fwk.Unschedulable, "no node is built for the pod: "+err.Error())
	}
	ref := capacity.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
	if p.args.PreemptFirst || class.Priority >= scheduling.SystemCriticalPriority {
		p.demand.SubmitLater(ref, class)
		return nil, fwk.NewStatus(fwk.Unschedulable, "preemption has its try before a node is built")
	}
	wait, why := p.demand.SubmitRefused(ref, class, func(node string) (plugin, reason string) {
		status := found.Get(node)
		return status.Plugin(), status.Message()
	})
	klog.FromContext(ctx).V(4).Info("Took down demand", "pod", klog.KObj(pod), "class", class.Key, "wait", wait, "reason", why)
	switch {
	case !wait:
		return nil, fwk.NewStatus(fwk.Unschedulable, why)
	case found.Get(noNode).Message() == why:
		return nil, fwk.NewStatus(fwk.Success) // Binder's PreFilter has said so, and the scheduler puts both into one sentence
	}
	return nil, fwk.NewStatus(fwk.Success, why)
}
