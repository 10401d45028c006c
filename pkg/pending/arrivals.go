package pending

import (
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// arrivalPatience is how long pods of a controller are expected while no pod of ours arrives, and how long a pod counts as one that is about to
// have its first scheduling cycle. Controllers whose pods an admission webhook rejects show no progress. As long as pods arrive, those of
// other controllers may be next: kube-controller-manager serves a few controllers at a time, and at most so many requests per second.
const arrivalPatience = time.Second

// moreWindow is how long, while pods of ours arrive, those of a controller that has none count as likely to come (More): kube-controller-manager
// serves a few controllers at a time, and the pods of those may be many. Plans don't wait for them as long as that.
const moreWindow = time.Minute

// Arrivals knows whether pods are about to come that a plan made now could not know: those of controllers that have just been created or scaled
// up and have created none since, Deployments that have no ReplicaSet for them yet, and pods that exist but have not had their first scheduling
// cycle. Once one pod of a controller waits, the controller's other pods are anticipated (see Anticipated), so nothing waits for them.
//
// Informers feed it. An event or a question takes longer the more controllers and pods the last minute has brought, and no longer in a
// larger cluster. Safe for concurrent use.
type Arrivals struct {
	owners *Owners
	pods   *Pods
	clock  clock.PassiveClock

	mu sync.Mutex
	// controllers are those from which pods are to come, by UID.
	controllers map[types.UID]expectation
	// passedOn is when a ReplicaSet of a Deployment last grew, by the Deployment's UID. From then on pods are expected of the ReplicaSet, and the
	// growth of the Deployment no longer counts: the informers may deliver the two events in either order.
	passedOn map[types.UID]time.Time
}

// expectation is a controller from which pods are to come.
type expectation struct {
	namespace string
	ref       metav1.OwnerReference
	had       int // how many pods it wanted before; once it has created one more, the others are anticipated. Not used for Deployments
	since     time.Time
}

// NewArrivals returns Arrivals that expect nothing before Watch's informers run.
func NewArrivals(owners *Owners, pods *Pods, c clock.PassiveClock) *Arrivals {
	return &Arrivals{owners: owners, pods: pods, clock: c, controllers: map[types.UID]expectation{}, passedOn: map[types.UID]time.Time{}}
}

// Watch has informers feed the Arrivals. Call it before they start.
func (a *Arrivals) Watch(f informers.SharedInformerFactory) error {
	for _, w := range []struct {
		kind     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"Deployments", f.Apps().V1().Deployments().Informer(), growth(a, "apps/v1", "Deployment", deploymentWants)},
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

// deploymentWants returns how many pods the ReplicaSets of a Deployment are to have, and the name of their scheduler.
func deploymentWants(d *appsv1.Deployment) (int32, string) {
	if d.Spec.Paused { // it gets no new ReplicaSet
		return 0, d.Spec.Template.Spec.SchedulerName
	}
	return replicas(d.Spec.Replicas), d.Spec.Template.Spec.SchedulerName
}

func replicas(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// growth returns a handler that notes controllers which want more pods than before. of returns how many a controller wants, and the name of
// their scheduler. Controllers of the initial list are left out: they have had time to create their pods.
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
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && kindOf(owner) == deploymentKind {
		delete(a.controllers, owner.UID)
		a.passedOn[owner.UID] = now
	}
	if _, done := a.passedOn[ref.UID]; done {
		return
	}
	a.controllers[ref.UID] = expectation{namespace: o.GetNamespace(), ref: ref, had: had, since: now}
}

// deploymentKind are the controllers of ReplicaSets.
var deploymentKind = schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}

func (a *Arrivals) forgetOld(now time.Time) {
	begun, last := a.pods.stream()
	arriving := now.Sub(last) <= arrivalPatience
	maps.DeleteFunc(a.passedOn, func(_ types.UID, at time.Time) bool { return now.Sub(at) > arrivalPatience })
	for uid, e := range a.controllers {
		if age := now.Sub(e.since); age > moreWindow || age > arrivalPatience && (!arriving || begun.Sub(e.since) > arrivalPatience) {
			delete(a.controllers, uid)
		}
	}
}

// Settled reports whether a plan may be made now: no pods are about to come that it could not know, and quiet, the time since demand was last
// submitted, has reached window. Shortly after a pod that has come alone, a shorter quiet is enough.
func (a *Arrivals) Settled(quiet, window time.Duration) bool {
	if a.Expected() {
		return false
	}
	last, alone := a.pods.lastArrival()
	return quiet >= window || alone && a.clock.Since(last) <= arrivalPatience
}

// Expected reports whether pods are about to come that a plan made now could not know.
func (a *Arrivals) Expected() bool {
	now := a.clock.Now()
	if a.pods.untried(now.Add(-arrivalPatience)) {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outstanding(now, admittedWindow)
}

// More reports whether pods are likely to come that a plan made now can't know, so that it isn't the time to launch nodes that they could share:
// pods of controllers that have none, also of those that have waited long for their turn, and pods that the scheduler hasn't come to yet.
func (a *Arrivals) More() bool {
	now := a.clock.Now()
	if a.pods.newestUntried(now) {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outstanding(now, moreWindow)
}

// outstanding reports whether pods are to come of a controller that has created none since it grew, at most so long ago.
func (a *Arrivals) outstanding(now time.Time, within time.Duration) bool {
	a.forgetOld(now)
	for uid, e := range a.controllers {
		deployment := kindOf(&e.ref) == deploymentKind
		if age := now.Sub(e.since); age > within || deployment && age > admittedWindow {
			continue
		}
		if deployment { // its pods are expected of its ReplicaSet as soon as that has grown
			if !a.owners.limited(e.namespace) {
				return true
			}
			delete(a.controllers, uid)
			continue
		}
		if created := a.pods.Created(uid); created <= e.had && a.owners.wanted(e.namespace, &e.ref) > created {
			return true
		}
		delete(a.controllers, uid) // its next pod waits or has found a node, or there will be none
	}
	return false
}
