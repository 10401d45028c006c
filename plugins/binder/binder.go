package binder

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/scheduling"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Name is the plugin's name in profiles.
const Name = "Binder"

// Binder brings planned pods to their nodes and keeps other pods out of the capacity that is reserved for them.
type Binder struct {
	ledger Ledger
	class  Classifier
	handle fwk.Handle
}

var (
	_ fwk.EnqueueExtensions = &Binder{}
	_ fwk.SignPlugin        = &Binder{}
	_ fwk.PreFilterPlugin   = &Binder{}
	_ fwk.FilterPlugin      = &Binder{}
	_ fwk.ReservePlugin     = &Binder{}
	_ fwk.PostBindPlugin    = &Binder{}
)

// Ledger answers from memory, without waiting; see pkg/capacity/ledger for what its methods mean.
type Ledger interface {
	Unwatched() bool
	Knows(uid types.UID) bool
	Adopt(ref capacity.PodRef, c *capacity.Class) bool
	Gated(pod *corev1.Pod) (closed, held bool)
	Pin(uid types.UID) (node, wait string)
	Watches(node string) bool
	Apart(uid types.UID, c *capacity.Class, preempts bool) map[capacity.ClassKey]bool
	Object(node string, ask *ledger.Ask, on ledger.Amounts) error
	TurnAway(node string, ref capacity.PodRef, daemon bool)
	Assume(uid types.UID, node string, daemon bool) error
	Unassume(uid types.UID, node string)
	Settled(uid types.UID, node string)
}

// Classifier returns a pod's equivalence class.
type Classifier interface {
	Class(pod *corev1.Pod) (*capacity.Class, error)
}

// New returns the factory of the plugin; the ledger is shared by all profiles.
func New(l Ledger, newClassifier func(fwk.Handle) Classifier) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		// The arguments concern the ledger and the classifier, which cmd sets up.
		if _, err := DecodeArgs(obj); err != nil {
			return nil, fmt.Errorf("profile %q: %w", h.ProfileName(), err)
		}
		return &Binder{ledger: l, class: newClassifier(h), handle: h}, nil
	}
}

// Name returns the plugin's name.
func (b *Binder) Name() string { return Name }

// EventsToRegister registers one event only, a new Node, because for every event registered here the queue looks at all pods that this
// plugin has rejected. A pod that was rejected to protect a node's reserved capacity becomes demand in its PostFilter, and the ledger
// requeues it with Activate. The ledger also requeues DaemonSet pods and pods that can't become demand (TurnAway). All other pods that
// Binder rejects wait for a new Node.
func (b *Binder) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{
		Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add},
		QueueingHintFn: func(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
			if closed, _ := b.ledger.Gated(pod); closed {
				return fwk.QueueSkip, nil // the ledger activates it when its own node is there
			}
			return fwk.Queue, nil // also a refused pod: no capacity is being launched for it
		},
	}}, nil
}

// SignPod keeps the scheduler's batching for ordinary pods. A pod that the ledger knows must go through its own cycle.
func (b *Binder) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if b.ledger.Knows(pod.UID) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "capacity is planned for the pod")
	}
	if b.ledger.Unwatched() {
		return nil, nil
	}
	// What Filter depends on, beyond what other plugins sign: the priority, and how early the pod may be bound.
	class, err := b.class.Class(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error()) // Filter checks it, and there is no key to sign it with
	}
	return []fwk.SignFragment{{Key: objects.SignatureEquivalenceClass, Value: string(class.Key)}}, nil
}

const stateKey fwk.StateKey = Name

// cycle is what Filter needs to know about the pod.
type cycle struct {
	ask ledger.Ask
	pin string // the name of the only node that the pod may use; empty: it may use any
	// unplannable: no plan can be made for it.
	unplannable bool
}

// Clone returns the same state, because nothing changes it after PreFilter.
func (c *cycle) Clone() fwk.StateData { return c }

// PreFilter pins a planned pod to its node. Skip would switch Filter off, so PreFilter returns it only while there is nothing that Filter
// could object to, however many other pods wait for plans or were refused.
func (b *Binder) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if b.ledger.Unwatched() && !b.ledger.Knows(pod.UID) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	c := &cycle{ask: ledger.Ask{UID: pod.UID, DaemonSet: objects.OfDaemonSet(pod)}}
	class, err := b.class.Class(pod)
	if err == nil && !c.ask.DaemonSet && !b.ledger.Knows(pod.UID) {
		b.ledger.Adopt(capacity.RefOf(pod), class)
	}
	if err != nil {
		// No plan can be made for it, but it may fit on a node. It takes no reserved capacity, and is not bound to a node that is still
		// booting.
		class = capacity.Unplannable(pod, err)
	}
	c.ask.Class = class
	var wait string
	if b.ledger.Knows(pod.UID) {
		c.pin, wait = b.ledger.Pin(pod.UID)
	}
	// Apart checks the pod against each class in the ledger that may conflict, possibly many. For a pinned pod its plan has checked that already.
	if !c.ask.DaemonSet && c.pin == "" {
		c.ask.Apart = b.ledger.Apart(pod.UID, class, err != nil || class.Priority >= scheduling.SystemCriticalPriority)
	}
	c.unplannable = err != nil
	state.Write(stateKey, c)
	switch {
	case wait != "":
		// Pending would express this better, but the framework treats it as an error here.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, wait)
	case c.pin == "":
		return nil, nil
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(c.pin)}, nil
}

// PreFilterExtensions returns nil: what other pods do on a node changes nothing in the ledger.
func (b *Binder) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter keeps reserved capacity for the pods that it is reserved for. It also keeps a pinned pod on its node, because a nominated node name or a
// batching hint bypasses PreFilter's result.
func (b *Binder) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	data, err := state.Read(stateKey)
	if err != nil {
		if errors.Is(err, fwk.ErrNotFound) {
			return nil // no node was watched when the cycle began
		}
		return fwk.AsStatus(err)
	}
	c := data.(*cycle)
	name := node.Node().Name
	if c.pin != "" && c.pin != name {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "capacity is reserved for the pod on another node")
	}
	if !b.ledger.Watches(name) {
		if !c.ask.DaemonSet && capacity.Booting(node.Node()) {
			return fwk.NewStatus(fwk.Unschedulable, errUnknownNode.Error())
		}
		return nil
	}
	if err := b.ledger.Object(name, &c.ask, amounts{node, b.class}); err != nil {
		if c.ask.DaemonSet || c.unplannable {
			b.ledger.TurnAway(name, capacity.RefOf(pod), c.ask.DaemonSet)
		}
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return nil
}

// Reserve tells the ledger that the scheduler's cache accounts for the pod from now on. If the node was cordoned in the ledger since
// Filter, or Filter was switched off when one of our nodes appeared, the pod has to look for another one. No PostFilter follows a failed
// Reserve, and no event reports such a cordon, so Reserve activates the pod itself.
func (b *Binder) Reserve(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if err := b.assume(pod, node); err != nil {
		b.handle.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return nil
}

func (b *Binder) assume(pod *corev1.Pod, node string) error {
	daemon := objects.OfDaemonSet(pod)
	if !daemon && !b.ledger.Watches(node) {
		info, err := b.handle.SnapshotSharedLister().NodeInfos().Get(node)
		if err == nil && capacity.Booting(info.Node()) {
			return errUnknownNode
		}
	}
	return b.ledger.Assume(pod.UID, node, daemon)
}

// errUnknownNode: the scheduler's cache has a node of ours, and the ledger hasn't. Both hear of Nodes from the same informer, but not at the
// same moment; what is planned for the node isn't known until the ledger has it.
var errUnknownNode = errors.New("its node has just appeared, and what is planned for it isn't known yet")

// Unreserve gives the pod its reservation back.
func (b *Binder) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) {
	b.ledger.Unassume(pod.UID, node)
}

// PostBind ends the reservation, which has been used.
func (b *Binder) PostBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) {
	b.ledger.Settled(pod.UID, node)
}
