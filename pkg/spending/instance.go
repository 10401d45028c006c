package spending

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// instance is an instance while the guard watches it.
type instance struct {
	purchase
	uid         string // of its claim
	node        string
	initialized time.Time
	steady      bool // it has been initialized for servedAfter
	launched    bool // the claim has shown that the cloud launched it
	// pods holds its pods except those of DaemonSets; nil: they no longer matter.
	pods map[types.UID]*boundPod
	// thrown holds the faults of pods that were evicted or rejected.
	thrown []guard.Fault
	// unusedSince is since when none of the pods that it was bought for is on it or planned there; zero: one is, or that wasn't checked yet.
	unusedSince time.Time
	ending
}

// purchase says what an instance was bought for.
type purchase struct {
	claim, pool, class string
	at                 time.Time
	price              float64 // of the dearest offering it may become, in dollars per hour
	workloads          []guard.Workload
	probes             []guard.Key
	// wanted holds the pods it was bought for, as far as these exist.
	wanted map[types.UID]guard.Workload
}

// ending says why an instance is being terminated. end is the fault that the controller reported which terminates it; neutral: that controller
// reported that it is no failure; over: its claim has ended (Ended).
type ending struct {
	end     *guard.Fault
	neutral bool
	over    bool
}

// boundPod is a pod on an instance.
type boundPod struct {
	workload guard.Workload
	running  time.Time // since when it is Running; zero: it isn't
	counted  bool      // it has been counted as served
	left     bool      // it has ended or is being deleted, and no longer uses the instance
}

// podless reports whether an instance with these workloads was bought for no pod, and returns the workload that stands for its purpose.
func podless(all []guard.Workload) (w guard.Workload, yes bool) {
	if len(all) > 0 {
		w = all[0]
	}
	return w, w.Namespace == ""
}

// lodges reports whether a pod that the instance was bought for is on it, or it was bought for no pod.
func (b *instance) lodges() bool {
	if _, none := podless(b.workloads); none {
		return true
	}
	for _, l := range b.pods {
		if !l.left && slices.Contains(b.workloads, l.workload) {
			return true
		}
	}
	return false
}

// hasOtherPods reports whether pods are on the instance that it was not bought for. After a restart these may have been bound before the
// pods it was bought for: if the latter are then refused, that is a race, and no fault of the instance.
func (b *instance) hasOtherPods() bool {
	for uid, l := range b.pods {
		if _, ok := b.wanted[uid]; !ok && !l.left {
			return true
		}
	}
	return false
}

// instances are those that the guard watches.
type instances struct {
	byClaim map[string]*instance
	byNode  map[string]*instance    // by Node name
	byPod   map[types.UID]*instance // by the UIDs of the pods they were bought for, until these are bound
}

func newInstances() instances {
	return instances{byClaim: map[string]*instance{}, byNode: map[string]*instance{}, byPod: map[types.UID]*instance{}}
}

// want records the pods that an instance was bought for.
func (all *instances) want(b *instance, pods map[types.UID]guard.Workload) {
	b.wanted = pods
	for uid := range pods {
		all.byPod[uid] = b
	}
}

// name records which Node is the instance's.
func (all *instances) name(b *instance, node string) {
	if all.byNode[b.node] == b {
		delete(all.byNode, b.node)
	}
	b.node = node
	all.byNode[node] = b
}

// of returns the instance that a pod is on; nil: none. over: the pod has ended or is being deleted; then it may also be the instance that was bought
// for the pod.
func (all *instances) of(pod *corev1.Pod, over bool) *instance {
	if pod.Spec.NodeName != "" {
		return all.byNode[pod.Spec.NodeName]
	}
	if over { // it may have been preempted while it was being bound
		return all.byPod[pod.UID]
	}
	return nil
}

// forget ends the watch of an instance.
func (all *instances) forget(b *instance) {
	delete(all.byClaim, b.claim)
	if all.byNode[b.node] == b {
		delete(all.byNode, b.node)
	}
	for uid := range b.wanted {
		if all.byPod[uid] == b {
			delete(all.byPod, uid)
		}
	}
}

// together returns how many pods of a workload are on instances that are watched, or had one of these bought for them.
func (all *instances) together(w guard.Workload) int {
	of := map[types.UID]bool{}
	for _, b := range all.byClaim {
		for uid, wanted := range b.wanted {
			of[uid] = of[uid] || wanted == w
		}
		for uid, l := range b.pods {
			of[uid] = of[uid] || l.workload == w && !l.left
		}
	}
	n := 0
	for _, is := range of {
		if is {
			n++
		}
	}
	return n
}
