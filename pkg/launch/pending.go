package launch

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Pending keeps the unscheduled pods of our profiles, each with its class, and tells the ledger when one is bound or deleted. The
// scheduler's own pod informer feeds it.
type Pending struct {
	ours         map[string]bool // scheduler names
	others       map[string]bool // schedulers whose unschedulable pods are demand, too
	reservations *Reservations
	classes      *Classes
	// Set by New before the first event. onRoom: a pod has left its node. onUnplannable: a pod of another scheduler needs a node and
	// can't be planned for.
	onRoom        func()
	onUnplannable func(ref capacity.PodRef, why string)
	lister        listersv1.PodLister // nil: reconcile has nothing to compare with

	mu   sync.Mutex
	pods map[types.UID]arrival
	// owned is the number of live pods per controller, bound or not, whichever scheduler they use.
	owned map[types.UID]int
	// ending is, per node, the number of bound pods that are being deleted.
	ending map[string]int
	// bound is the number of live pods per group that have a node.
	bound map[Group]int
}

// arrival is an unscheduled pod and when this process first saw it.
type arrival struct {
	pod  *corev1.Pod
	seen time.Time
	told string // why it can't be planned for, as last reported in its events
}

// NewPending returns a Pending for pods of the named schedulers.
func NewPending(schedulers []string, reservations *Reservations, classes *Classes) *Pending {
	p := &Pending{ours: map[string]bool{}, reservations: reservations, classes: classes, pods: map[types.UID]arrival{}, owned: map[types.UID]int{}, ending: map[string]int{}, bound: map[Group]int{}}
	for _, s := range schedulers {
		p.ours[s] = true
	}
	return p
}

// ProvisionFor turns pods that other schedulers have found no node for into demand. Those schedulers bind the pods. Call it before the
// first event.
func (p *Pending) ProvisionFor(schedulers []string) {
	p.others = map[string]bool{}
	for _, s := range schedulers {
		p.others[s] = !p.ours[s]
	}
	p.classes.others = p.others
}

// asks reports whether another scheduler has found no node for the pod, and a node may be launched for it.
func (p *Pending) asks(pod *corev1.Pod) bool {
	return p.others[pod.Spec.SchedulerName] && objects.DaemonSetKey(pod) == "" &&
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		})
}

// Handler returns the handler for the scheduler's pod informer.
func (p *Pending) Handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { p.observe(nil, o.(*corev1.Pod)) },
		UpdateFunc: func(o, now any) {
			old, pod := o.(*corev1.Pod), now.(*corev1.Pod)
			if old.UID != pod.UID {
				// The pod was deleted and created again under its name, as StatefulSets do, while the watch was interrupted.
				p.deleted(old)
				old = nil
			}
			p.observe(old, pod)
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if pod, ok := o.(*corev1.Pod); ok {
				p.deleted(pod)
			}
		},
	}
}

func (p *Pending) deleted(pod *corev1.Pod) {
	p.count(pod, nil)
	p.drop(pod, true, func(l *ledger.Ledger) { l.Gone(pod.UID) })
	if pod.Spec.NodeName != "" && p.onRoom != nil {
		p.onRoom()
	}
}

func (p *Pending) observe(old, pod *corev1.Pod) {
	p.count(old, pod)
	if pod.Spec.NodeName != "" {
		if old != nil && old.Spec.NodeName != "" {
			return // bound before
		}
		p.drop(pod, true, func(l *ledger.Ledger) { l.Bound(pod.UID) })
		if key := objects.DaemonSetKey(pod); key != "" {
			p.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.DaemonBound(pod.Spec.NodeName, key) })
		}
		return
	}
	asks := p.asks(pod)
	ended := pod.DeletionTimestamp != nil || objects.Ended(pod)
	if !p.ours[pod.Spec.SchedulerName] && !asks || ended || len(pod.Spec.SchedulingGates) > 0 {
		p.drop(pod, ended, func(l *ledger.Ledger) { l.Gone(pod.UID) })
		return
	}
	var class *capacity.Class
	var err error
	if asks {
		class, err = p.classes.Class(pod)
	}
	p.mu.Lock()
	a, known := p.pods[pod.UID]
	if !known {
		a.seen = p.reservations.clock.Now()
	}
	why, news := "", false
	if err != nil {
		why = oneLine(err.Error())
		news = a.told != why
	}
	a.pod, a.told = pod, why
	p.pods[pod.UID] = a
	p.mu.Unlock()
	switch {
	case asks && err == nil:
		p.reservations.Submit(refOf(pod), class) // its condition is all that its scheduler reports
		return
	case news && p.onUnplannable != nil:
		p.onUnplannable(refOf(pod), why)
	}
	if !known && p.reservations.Knows(pod.UID) { // the scheduler's handler ran before this one
		p.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Seen(pod.UID) })
	}
	if owner := objects.Controller(pod); old == nil && owner != "" {
		holds := false
		if !p.reservations.Idle() {
			p.reservations.read(func(l *ledger.Ledger) { holds = l.Holds(owner) })
		}
		if !holds {
			return
		}
		if class, err := p.classes.Class(pod); err == nil {
			p.reservations.Adopt(refOf(pod), class)
		}
	}
}

// drop forgets a pod that isn't waiting for one of our nodes. ended: it never will again.
func (p *Pending) drop(pod *corev1.Pod, ended bool, tell func(*ledger.Ledger)) {
	p.forget(pod.UID, ended && (p.ours[pod.Spec.SchedulerName] || p.others[pod.Spec.SchedulerName]), tell)
}

func (p *Pending) forget(uid types.UID, ended bool, tell func(*ledger.Ledger)) {
	p.mu.Lock()
	delete(p.pods, uid)
	p.mu.Unlock()
	p.classes.forget(uid)
	p.reservations.over(uid, ended)
	if p.reservations.Knows(uid) {
		p.reservations.Step(func(l *ledger.Ledger, _ time.Time) { tell(l) })
	}
}

// Get returns the pod if it is still unscheduled.
func (p *Pending) Get(uid types.UID) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[uid].pod
}

// arrived returns the controller of an unscheduled pod and when the pod was first seen. owner is nil if the pod has none or isn't waiting.
func (p *Pending) arrived(uid types.UID) (owner *metav1.OwnerReference, seen time.Time) {
	p.mu.Lock()
	a := p.pods[uid]
	p.mu.Unlock()
	if a.pod == nil {
		return nil, a.seen
	}
	return metav1.GetControllerOfNoCopy(a.pod), a.seen
}

// has reports whether the pod is known to wait, and so is counted.
func (p *Pending) has(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.pods[uid]
	return ok
}

// created returns how many live pods the controller has.
func (p *Pending) created(owner types.UID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owned[owner]
}

// makesRoom reports whether pods of the node are being deleted.
func (p *Pending) makesRoom(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending[node] > 0
}

// count updates owned, ending and bound. A pod that is being deleted doesn't count for its controller, which creates another one.
func (p *Pending) count(old, pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shift(p.owned, counted(old), counted(pod))
	shift(p.ending, leaves(old), leaves(pod))
	shift(p.bound, settled(old), settled(pod))
}

// shift counts one less of before and one more of now; zero keys are not counted.
func shift[K comparable](counts map[K]int, before, now K) {
	var none K
	if before == now {
		return
	}
	if now != none {
		counts[now]++
	}
	if before == none {
		return
	}
	if counts[before]--; counts[before] <= 0 {
		delete(counts, before)
	}
}

// boundOf returns how many live pods of the group have a node.
func (p *Pending) boundOf(group Group) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bound[group]
}

// settled returns the group that the pod counts for as placed; zero: none.
func settled(pod *corev1.Pod) Group {
	if pod == nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || objects.Ended(pod) {
		return Group{}
	}
	return groupOf(pod)
}

// leaves returns the node on which the pod is being deleted; empty: none.
func leaves(pod *corev1.Pod) string {
	if pod == nil || pod.DeletionTimestamp == nil {
		return ""
	}
	return pod.Spec.NodeName
}

// counted returns the controller that the pod counts for; empty: none.
func counted(pod *corev1.Pod) types.UID {
	if pod == nil || pod.DeletionTimestamp != nil || objects.Ended(pod) {
		return ""
	}
	return objects.Controller(pod)
}

// all returns the unscheduled pods in the order of their creation.
func (p *Pending) all() []*corev1.Pod {
	p.mu.Lock()
	out := make([]*corev1.Pod, 0, len(p.pods))
	for _, a := range p.pods {
		out = append(out, a.pod)
	}
	p.mu.Unlock()
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return compare(a.UID, b.UID)
	})
	return out
}

func compare[T ~string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func refOf(pod *corev1.Pod) capacity.PodRef {
	return capacity.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
}
