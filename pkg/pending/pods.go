package pending

import (
	"cmp"
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
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Config says which pods are demand.
type Config struct {
	// Schedulers are the names of our profiles.
	Schedulers []string
	// Others are schedulers whose pods are demand, too, once these have found no node for them. They bind the pods themselves.
	Others []string
	// Lister has all pods, for Reconcile; nil: there is nothing to compare with.
	Lister listersv1.PodLister
	// Events tells pods of Others that can't be planned for why: their own scheduler can't tell. It may be nil where there are none.
	Events Events
}

// Events records events on pods.
type Events interface {
	Pod(ref capacity.PodRef, eventType, reason, note string)
}

// Pods keeps the unscheduled pods of our profiles, each with its class, and tells the ledger when one is bound or deleted. The
// scheduler's own pod informer feeds it.
type Pods struct {
	cfg          Config
	ours, others map[string]bool // scheduler names
	reservations *reservations.Ledger
	Classes      *Classes
	left         func() // called when a pod has left its node or needs less of it; set before the first event

	mu        sync.Mutex
	pods      map[types.UID]arrival
	newcomers newcomers
	// owned is the number of live pods per controller, bound or not, whichever scheduler they use.
	owned map[types.UID]int
	// ending are, per node, the bound pods that are being deleted, with the time at which each one's grace period is over.
	ending ending
	// bound is the number of live pods with a node, per group (PodGroup).
	bound map[Group]int
}

// arrival is an unscheduled pod and when this process first saw it.
type arrival struct {
	pod  *corev1.Pod
	seen time.Time
	told string // why the pod can't be planned for, as last reported in its events
}

// New returns Pods that are empty.
func New(cfg Config, reservations *reservations.Ledger, classes *Classes) *Pods {
	p := &Pods{cfg: cfg, ours: map[string]bool{}, others: map[string]bool{}, reservations: reservations, Classes: classes, pods: map[types.UID]arrival{}, owned: map[types.UID]int{}, ending: ending{}, bound: map[Group]int{}}
	for _, s := range cfg.Schedulers {
		p.ours[s] = true
	}
	for _, s := range cfg.Others {
		p.others[s] = !p.ours[s]
	}
	classes.others = p.others
	return p
}

// OnPodLeft sets the func that is called when a pod has left its node or was resized downwards in place, so that capacity may be free there
// now. Call it before the first event.
func (p *Pods) OnPodLeft(f func()) { p.left = f }

// asks reports whether another scheduler has found no node for the pod, and a node may be launched for it.
func (p *Pods) asks(pod *corev1.Pod) bool {
	return p.others[pod.Spec.SchedulerName] && objects.DaemonSetKey(pod) == "" &&
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		})
}

// Handler returns the handler for the scheduler's pod informer.
func (p *Pods) Handler() cache.ResourceEventHandler {
	return observe.Changes(func(before, now *corev1.Pod) {
		if now == nil {
			p.deleted(before)
		} else {
			p.observe(before, now)
		}
	})
}

func (p *Pods) deleted(pod *corev1.Pod) {
	p.count(pod, nil)
	p.drop(pod, true, func(l *ledger.Ledger, _ time.Time) { l.Gone(pod.UID) })
	if pod.Spec.NodeName != "" && p.left != nil {
		p.left()
	}
}

func (p *Pods) observe(old, pod *corev1.Pod) {
	p.count(old, pod)
	if old == nil { // affinity and spread constraints don't change
		p.Classes.name(pod)
	}
	if pod.Spec.NodeName != "" {
		if old != nil && old.Spec.NodeName != "" {
			if p.left != nil && capacity.Shrank(old, pod) {
				p.left()
			}
			return // bound before
		}
		p.drop(pod, true, func(l *ledger.Ledger, now time.Time) { l.Bound(pod.UID, pod.Spec.NodeName, now) })
		if key := objects.DaemonSetKey(pod); key != "" {
			p.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.DaemonBound(pod.Spec.NodeName, key) })
		}
		return
	}
	asks := p.asks(pod)
	ended := pod.DeletionTimestamp != nil || objects.Ended(pod)
	if len(pod.Spec.SchedulingGates) > 0 && !ended {
		return // if the ledger has it, the scheduler knows a later version without them, which this handler will see in a moment
	}
	if !p.ours[pod.Spec.SchedulerName] && !asks || ended {
		p.drop(pod, ended, func(l *ledger.Ledger, _ time.Time) { l.Gone(pod.UID) })
		return
	}
	var class *capacity.Class
	var err error
	if asks {
		class, err = p.Classes.Class(pod)
	}
	p.mu.Lock()
	a, known := p.pods[pod.UID]
	if !known {
		a.seen = p.reservations.Now()
		if p.ours[pod.Spec.SchedulerName] && objects.DaemonSetKey(pod) == "" {
			p.newcomers.add(pod.UID, a.seen)
		}
	}
	why, news := "", false
	if err != nil {
		why = objects.OneLine(err.Error())
		news = a.told != why
	}
	a.pod, a.told = pod, why
	p.pods[pod.UID] = a
	p.mu.Unlock()
	switch {
	case asks && err == nil:
		p.reservations.Submit(capacity.RefOf(pod), class) // its own scheduler doesn't submit it: only its PodScheduled condition tells of it
		return
	case news:
		p.cfg.Events.Pod(capacity.RefOf(pod), corev1.EventTypeWarning, "FailedProvisioning", why)
	}
	if !known && p.reservations.Knows(pod.UID) { // the scheduler's handler ran before this one
		p.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Seen(pod.UID) })
	}
}

// drop forgets a pod that doesn't wait for a node to be launched. ended: it never will again. tell is the step that informs the ledger, if that has
// the pod.
func (p *Pods) drop(pod *corev1.Pod, ended bool, tell func(*ledger.Ledger, time.Time)) {
	p.forget(pod.UID, ended && (p.ours[pod.Spec.SchedulerName] || p.others[pod.Spec.SchedulerName]), tell)
}

func (p *Pods) forget(uid types.UID, ended bool, tell func(*ledger.Ledger, time.Time)) {
	p.mu.Lock()
	delete(p.pods, uid)
	p.mu.Unlock()
	p.Classes.forget(uid)
	p.reservations.Forget(uid, ended)
	if p.reservations.Knows(uid) {
		p.reservations.Step(tell)
	}
}

// Get returns the pod if it is still unscheduled.
func (p *Pods) Get(uid types.UID) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[uid].pod
}

// arrived returns the controller of an unscheduled pod and when the pod was first seen. owner is nil if the pod has none or isn't waiting.
func (p *Pods) arrived(uid types.UID) (owner *metav1.OwnerReference, seen time.Time) {
	p.mu.Lock()
	a := p.pods[uid]
	p.mu.Unlock()
	if a.pod == nil {
		return nil, a.seen
	}
	return metav1.GetControllerOfNoCopy(a.pod), a.seen
}

// Has reports whether the pod is among the unscheduled ones that Pods keeps.
func (p *Pods) Has(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.pods[uid]
	return ok
}

// Created returns how many live pods the controller has.
func (p *Pods) Created(owner types.UID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owned[owner]
}

// count updates owned, ending and bound. A pod that is being deleted doesn't count for its controller, which creates another one.
func (p *Pods) count(old, pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shift(p.owned, counted(old), counted(pod))
	p.ending.count(old, pod)
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

// BoundOf returns how many live pods of the group have a node.
func (p *Pods) BoundOf(group Group) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bound[group]
}

// settled returns the group that the pod counts for as placed; zero: none.
func settled(pod *corev1.Pod) Group {
	if pod == nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || objects.Ended(pod) {
		return Group{}
	}
	return GroupOf(pod)
}

// counted returns the controller that the pod counts for; empty: none.
func counted(pod *corev1.Pod) types.UID {
	if pod == nil || pod.DeletionTimestamp != nil || objects.Ended(pod) {
		return ""
	}
	return objects.Controller(pod)
}

// All returns the unscheduled pods in the order of their creation.
func (p *Pods) All() []*corev1.Pod {
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
		return cmp.Compare(a.UID, b.UID)
	})
	return out
}
