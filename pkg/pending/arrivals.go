package pending

import (
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// arrivalPatience is how long pods of a controller are expected while no pod of ours arrives, and how long a pod counts as one that is about to
// have its first scheduling cycle. Controllers whose pods an admission webhook rejects show no progress. As long as pods arrive, those of
// other controllers may be next: kube-controller-manager serves a few controllers at a time, and at most so many requests per second.
const arrivalPatience = time.Second

// Arrivals knows whether pods are about to come that a plan made now could not know: those of controllers that have just been created or scaled
// up and have created none since, and pods that exist but have not had their first scheduling cycle. The other pods of a controller that one
// pod waits of are anticipated (see Anticipated), so they are not waited for.
//
// Informers feed it. An event or a question takes longer the more controllers and pods the last second has brought, and no longer in a
// larger cluster. Safe for concurrent use.
type Arrivals struct {
	owners *Owners
	pods   *Pods
	clock  clock.PassiveClock

	mu sync.Mutex
	// controllers are those from which pods are to come, by UID.
	controllers map[types.UID]expectation
}

// expectation is a controller from which pods are to come.
type expectation struct {
	namespace string
	ref       metav1.OwnerReference
	had       int // how many pods it wanted before; one more is a sign that the others follow
	since     time.Time
}

// NewArrivals returns Arrivals that expect nothing before Watch's informers run.
func NewArrivals(owners *Owners, pods *Pods, c clock.PassiveClock) *Arrivals {
	return &Arrivals{owners: owners, pods: pods, clock: c, controllers: map[types.UID]expectation{}}
}

// Watch has informers feed the Arrivals. Call it before they start.
func (a *Arrivals) Watch(f informers.SharedInformerFactory) error {
	for _, w := range []struct {
		kind     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"ReplicaSets", f.Apps().V1().ReplicaSets().Informer(), growth(a, "apps/v1", "ReplicaSet", func(rs *appsv1.ReplicaSet) (int32, string) {
			return replicas(rs.Spec.Replicas), rs.Spec.Template.Spec.SchedulerName
		})},
		{"StatefulSets", f.Apps().V1().StatefulSets().Informer(), growth(a, "apps/v1", "StatefulSet", func(set *appsv1.StatefulSet) (int32, string) {
			return replicas(set.Spec.Replicas), set.Spec.Template.Spec.SchedulerName
		})},
		{"Jobs", f.Batch().V1().Jobs().Informer(), growth(a, "batch/v1", "Job", func(job *batchv1.Job) (int32, string) {
			return int32(jobWants(job)), job.Spec.Template.Spec.SchedulerName
		})},
	} {
		if _, err := w.informer.AddEventHandler(w.handler); err != nil {
			return fmt.Errorf("watching %s: %w", w.kind, err)
		}
	}
	return nil
}

func replicas(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// growth returns a handler that notes controllers which want more pods than before. of returns how many a controller wants, and the name of
// their scheduler. Those of the initial list have had their time.
func growth[T metav1.Object](a *Arrivals, version, kind string, of func(T) (int32, string)) cache.ResourceEventHandler {
	note := func(o T, before int32) {
		if want, scheduler := of(o); want > before && (a.pods.ours[scheduler] || a.pods.others[scheduler]) {
			a.expect(o, metav1.OwnerReference{APIVersion: version, Kind: kind, Name: o.GetName(), UID: o.GetUID()}, int(before))
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if t, ok := o.(T); ok && !initial {
				note(t, 0)
			}
		},
		UpdateFunc: func(before, after any) {
			old, was := before.(T)
			t, ok := after.(T)
			if !was || !ok {
				return
			}
			had := int32(0)
			if old.GetUID() == t.GetUID() {
				had, _ = of(old)
			}
			note(t, had)
		},
	}
}

// expect notes a controller that has been created or scaled up.
func (a *Arrivals) expect(o metav1.Object, ref metav1.OwnerReference, had int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	a.forgetOld(now)
	a.controllers[ref.UID] = expectation{namespace: o.GetNamespace(), ref: ref, had: had, since: now}
}

func (a *Arrivals) forgetOld(now time.Time) {
	arriving := now.Sub(a.pods.lastArrival()) <= arrivalPatience
	for uid, e := range a.controllers {
		if age := now.Sub(e.since); age > admittedWindow || age > arrivalPatience && !arriving {
			delete(a.controllers, uid)
		}
	}
}

// Expected reports whether pods are about to come that a plan made now could not know.
func (a *Arrivals) Expected() bool {
	now := a.clock.Now()
	if a.pods.untried(now.Add(-arrivalPatience)) {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetOld(now)
	for uid, e := range a.controllers {
		if created := a.pods.Created(uid); created <= e.had && a.owners.wanted(e.namespace, &e.ref) > created {
			return true
		}
		delete(a.controllers, uid) // its next pod waits or has found a node, or there will be none
	}
	return false
}

// newcomers are the pods of our profiles that may not have had their first scheduling cycle. The lock of Pods guards them.
type newcomers struct {
	pods []firstSeen // of the last arrivalPatience, and some older ones, in order of time
	last time.Time   // when the last one was first seen
}

// firstSeen is when this process first saw a pod.
type firstSeen struct {
	uid  types.UID
	seen time.Time
}

func (n *newcomers) add(uid types.UID, now time.Time) {
	n.since(now.Add(-arrivalPatience))
	n.pods, n.last = append(n.pods, firstSeen{uid, now}), now
}

// since forgets pods that were not seen after a time.
func (n *newcomers) since(after time.Time) {
	for len(n.pods) > 0 && !n.pods[0].seen.After(after) {
		n.pods = n.pods[1:]
	}
}

// lastArrival returns when the last pod of our profiles was first seen.
func (p *Pods) lastArrival() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newcomers.last
}

// untried reports whether a pod that was first seen after a time has not had its first scheduling cycle. Only one goroutine may ask.
func (p *Pods) untried(after time.Time) bool {
	p.mu.Lock()
	p.newcomers.since(after)
	pods := p.newcomers.pods
	p.newcomers.pods = nil
	p.mu.Unlock()
	first := slices.IndexFunc(pods, func(one firstSeen) bool { return p.Has(one.uid) && p.reservations.Free(one.uid) })
	if first < 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newcomers.pods = append(pods[first:], p.newcomers.pods...)
	return true
}
