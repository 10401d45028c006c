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

// Name is the plugin's name in profiles.
const Name = "Provision"

// Provision is the first PostFilter plugin of a profile for whose pods nodes may be launched.
type Provision struct {
	args   *Args
	demand Demand
	class  Classifier
}

var _ fwk.PostFilterPlugin = &Provision{}

// Demand accepts pods that fit on no node. Implementations return at once.
type Demand interface {
	// SubmitRefused submits a pod. It returns whether capacity for the pod is on its way or may be, and what the pod waits for or why
	// there will be none. by returns what the filters reported for a node: the plugin and its reason, or "".
	SubmitRefused(ref capacity.PodRef, c *capacity.Class, by func(node string) (plugin, reason string)) (wait bool, why string)
	// SubmitLater is for a pod that preemption should help first: the pod becomes demand if preemption fails.
	SubmitLater(ref capacity.PodRef, c *capacity.Class)
	// Withdraw ends the demand of a pod that can't be planned for any more.
	Withdraw(uid types.UID)
}

// Classifier returns a pod's equivalence class, or an error that says why the pod can't be planned for.
type Classifier interface {
	Class(pod *corev1.Pod) (*capacity.Class, error)
}

// noNode isn't the name of a node. For such a name the framework returns the status that a PreFilter plugin has set for all nodes.
const noNode = ""

// New returns the factory of the plugin. All profiles share the reservations; newClassifier is called once per profile, before informers
// start.
func New(demand Demand, newClassifier func(fwk.Handle) Classifier) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, err := DecodeArgs(obj)
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", h.ProfileName(), err)
		}
		return &Provision{args: args, demand: demand, class: newClassifier(h)}, nil
	}
}

// Name returns the plugin's name.
func (p *Provision) Name() string { return Name }

// PostFilter submits the pod as demand. Success without a node means: wait, capacity is coming, preemption is not needed. Unschedulable
// lets the rest of the chain (preemption) try: for DaemonSet pods, which no new node helps, for pods that get no new node or that none
// would help, and for critical pods, which must not wait for an instance.
func (p *Provision) PostFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, found fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if objects.OfDaemonSet(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a new node does not help a DaemonSet's pod")
	}
	class, err := p.class.Class(pod)
	if err != nil {
		p.demand.Withdraw(pod.UID) // capacity may still be reserved for it, if its volume was deleted since, say
		return nil, fwk.NewStatus(fwk.Unschedulable, "no node is launched for the pod: "+err.Error())
	}
	ref := capacity.RefOf(pod)
	if p.args.PreemptFirst || class.Priority >= scheduling.SystemCriticalPriority {
		p.demand.SubmitLater(ref, class)
		return nil, fwk.NewStatus(fwk.Unschedulable, "preemption is tried before a node is launched")
	}
	wait, why := p.demand.SubmitRefused(ref, class, func(node string) (plugin, reason string) {
		status := found.Get(node)
		return status.Plugin(), status.Message()
	})
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() { // its arguments cost more than the rest of the answer to a refused pod
		logger.Info("Recorded demand", "pod", klog.KObj(pod), "class", class.Key, "wait", wait, "reason", why)
	}
	switch {
	case !wait:
		return nil, fwk.NewStatus(fwk.Unschedulable, why)
	case found.Get(noNode).Message() == why:
		return nil, fwk.NewStatus(fwk.Success) // Binder's PreFilter has said so already, and the scheduler joins both texts in one sentence
	}
	return nil, fwk.NewStatus(fwk.Success, why)
}
