package spending

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// Changes that breakers may depend on. Of workloads only the pod template counts, neither the status nor the replicas: each node that is launched as
// a probe changes the status of DaemonSets.

const (
	// retrySpacing is the least time between two retries that a workload's annotation causes. There is a limit because the workload's owner
	// doesn't pay for the instances.
	retrySpacing = 5 * time.Minute
	// annotationRevision on a Deployment's ReplicaSet counts the Deployment's rollouts.
	annotationRevision = "deployment.kubernetes.io/revision"
	// mostTemplates bounds the workloads whose pod templates are remembered.
	mostTemplates = 50_000
)

// Changes hears of the objects that breakers may depend on. Informer handlers call it, and Guard.Tend once a second. Its lock is not held
// while the guard is called.
type Changes struct {
	guard *Guard

	mu sync.Mutex
	// workloads holds the last known state of each workload, later the workloads whose retry annotation changed too soon after their last retry.
	workloads map[guard.Workload]workloadState
	later     map[guard.Workload]retryLater
}

func newChanges(g *Guard) *Changes {
	return &Changes{guard: g, workloads: map[guard.Workload]workloadState{}, later: map[guard.Workload]retryLater{}}
}

// PoolChanged tells the guard that a pool's spec has changed, or that a user asks for a retry of all that keeps the pool from growing.
func (c *Changes) PoolChanged(pool, class string, retry bool) {
	// A Node may be refused for a label that the pool's template lacks.
	c.guard.change(func(k guard.Key) bool { return k.Pool == pool || class != "" && k.Class == class }, retry)
}

// ClassChanged is PoolChanged for a node class. pools are those that use it.
func (c *Changes) ClassChanged(class string, pools []string, retry bool) {
	of := map[string]bool{}
	for _, p := range pools {
		of[p] = true
	}
	c.guard.change(func(k guard.Key) bool { return k.Class == class || k.Pool != "" && of[k.Pool] }, retry)
}

// Watch watches the objects that pods and DaemonSet pods are made from. Call it before the informers start.
func (c *Changes) Watch(f informers.SharedInformerFactory) error {
	for _, w := range c.watches(f) {
		if _, err := w.informer.AddEventHandler(w.handler); err != nil {
			return fmt.Errorf("watching the workloads that the spending guard asks about: %w", err)
		}
	}
	return nil
}

type watch struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandler
}

func (c *Changes) watches(f informers.SharedInformerFactory) []watch {
	everywhere := func(k guard.Key) bool { return !k.Machine() }
	daemons := f.Apps().V1().DaemonSets().Lister()
	daemon := func(is func(*appsv1.DaemonSet) bool) bool { // their pods may run on any node
		all, err := daemons.List(labels.Everything())
		return err != nil || slices.ContainsFunc(all, is)
	}
	return []watch{
		{f.Apps().V1().DaemonSets().Informer(), changes(func(ds *appsv1.DaemonSet) any { return ds.Spec.Template.Spec }, func(*appsv1.DaemonSet) {
			c.guard.change(func(guard.Key) bool { return true }, false) // no node is any good without the DaemonSet of its network or its devices
		})},
		{f.Core().V1().LimitRanges().Informer(), changes(func(l *corev1.LimitRange) any { return l.Spec }, func(l *corev1.LimitRange) {
			sized := daemon(func(ds *appsv1.DaemonSet) bool { return ds.Namespace == l.Namespace })
			c.guard.change(func(k guard.Key) bool {
				return everywhere(k) && (sized || k.PoolWide() || k.Workload.Namespace == l.Namespace)
			}, false)
		})},
		{f.Node().V1().RuntimeClasses().Informer(), changes(func(r *nodev1.RuntimeClass) any { return []any{r.Overhead, r.Scheduling, r.Handler} }, func(r *nodev1.RuntimeClass) {
			uses := func(spec *corev1.PodSpec) bool {
				return spec.RuntimeClassName != nil && *spec.RuntimeClassName == r.Name
			}
			sized := daemon(func(ds *appsv1.DaemonSet) bool { return uses(&ds.Spec.Template.Spec) })
			users := c.usersWhere(func(pod *corev1.Pod) bool { return uses(&pod.Spec) })
			c.guard.change(func(k guard.Key) bool {
				return everywhere(k) && (sized || users[k.Workload] || k.PoolWide() && len(users) > 0)
			}, false)
		})},
		{f.Storage().V1().StorageClasses().Informer(), changes(func(sc *storagev1.StorageClass) any {
			sc = sc.DeepCopy()
			sc.ObjectMeta = metav1.ObjectMeta{}
			return sc
		}, func(*storagev1.StorageClass) { c.guard.change(everywhere, false) })},
		{f.Storage().V1().CSIDrivers().Informer(), changes(func(d *storagev1.CSIDriver) any { return d.Spec }, func(*storagev1.CSIDriver) { c.guard.change(everywhere, false) })},
		{f.Core().V1().PersistentVolumeClaims().Informer(), changes(func(pvc *corev1.PersistentVolumeClaim) any {
			return []any{pvc.Spec.VolumeName, pvc.Status.Phase == corev1.ClaimBound}
		}, func(pvc *corev1.PersistentVolumeClaim) {
			if users := c.usersOf(pvc); len(users) > 0 {
				c.guard.change(func(k guard.Key) bool { return users[k.Workload] }, false)
			}
		})},
		{f.Resource().V1().ResourceClaims().Informer(), changes(func(rc *resourcev1.ResourceClaim) any {
			return []any{rc.Spec, rc.Status.Allocation != nil}
		}, func(rc *resourcev1.ResourceClaim) {
			if metav1.GetControllerOfNoCopy(rc) != nil {
				return // made for one pod, from its template
			}
			if users := c.usersWhere(func(pod *corev1.Pod) bool { return usesClaim(pod, rc) }); len(users) > 0 {
				c.guard.change(func(k guard.Key) bool { return users[k.Workload] }, false)
			}
		})},
		{f.Apps().V1().ReplicaSets().Informer(), c.workloadChanges(func(o metav1.Object) *corev1.PodTemplateSpec { return &o.(*appsv1.ReplicaSet).Spec.Template })},
		{f.Apps().V1().StatefulSets().Informer(), c.workloadChanges(func(o metav1.Object) *corev1.PodTemplateSpec { return &o.(*appsv1.StatefulSet).Spec.Template })},
		{f.Batch().V1().Jobs().Informer(), c.workloadChanges(func(o metav1.Object) *corev1.PodTemplateSpec { return &o.(*batchv1.Job).Spec.Template })},
	}
}

// usersOf returns the workloads whose waiting pods use a claim.
func (c *Changes) usersOf(pvc *corev1.PersistentVolumeClaim) map[guard.Workload]bool {
	return c.usersWhere(func(pod *corev1.Pod) bool {
		return pod.Namespace == pvc.Namespace && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == pvc.Name
		})
	})
}

// usesClaim reports whether a pod uses a ResourceClaim by name.
func usesClaim(pod *corev1.Pod, c *resourcev1.ResourceClaim) bool {
	return pod.Namespace == c.Namespace && slices.ContainsFunc(pod.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool {
		return r.ResourceClaimName != nil && *r.ResourceClaimName == c.Name
	})
}

// usersWhere returns the workloads of the waiting pods that match, or nil if no breaker is open.
func (c *Changes) usersWhere(is func(*corev1.Pod) bool) map[guard.Workload]bool {
	if !c.anyOpen() {
		return nil
	}
	out := map[guard.Workload]bool{}
	for _, pod := range c.guard.state.workloads.pods.All() {
		if is(pod) {
			out[c.guard.WorkloadOf(pod)] = true
		}
	}
	return out
}

// anyOpen reports whether launches are paused for any reason.
func (c *Changes) anyOpen() bool {
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.anyOpen()
}

// poolWide returns the open pool-wide breakers of which the workload is a member (guard.Breaker.Members). A closed one keeps its members.
func (c *Changes) poolWide(w guard.Workload) map[guard.Key]bool {
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	wide := map[guard.Key]bool{}
	for _, b := range g.state.breakers.Breakers() {
		if b.Open() && b.Key.PoolWide() && slices.Contains(b.Members, w) {
			wide[b.Key] = true
		}
	}
	return wide
}

// changes returns a handler that calls f when spec returns something else for an object than before. Added and deleted objects are changes,
// too, except those of the initial list.
func changes[T metav1.Object](spec func(T) any, f func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if t, ok := o.(T); ok && !initial {
				f(t)
			}
		},
		UpdateFunc: func(before, now any) {
			if !reflect.DeepEqual(spec(before.(T)), spec(now.(T))) {
				f(now.(T))
			}
		},
		DeleteFunc: observe.Deletion(f),
	}
}

// workloadChanges returns a handler that looks for changed pod templates and for the retry annotation. A Deployment's are seen on its
// ReplicaSets: its controller copies its annotations to them.
func (c *Changes) workloadChanges(template func(metav1.Object) *corev1.PodTemplateSpec) cache.ResourceEventHandler {
	seen := func(o any, initial bool) {
		if obj, ok := o.(metav1.Object); ok {
			c.workloadSeen(obj, template(obj), initial)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{AddFunc: seen, UpdateFunc: func(before, o any) {
		seen(o, false)
		c.jobAsks(before, o)
	}}
}

// workloadState is the last known state of a workload.
type workloadState struct {
	of       origin
	template string    // hash of the pod template's spec
	retry    string    // the last value of the retry annotation that is not to be handled again
	retried  time.Time // when the annotation last caused a retry
}

// origin identifies the object that a workload's state was read from: the latest of a Deployment's ReplicaSets or a CronJob's Jobs. The
// older ones change, too, but show an outdated state.
type origin struct {
	uid, owner types.UID // of the object, and of its controller; without a controller both are the object's
	made       time.Time // when the object was created
	rank       int64     // orders the objects of one controller: a ReplicaSet's revision, or else the second of creation
}

func originOf(o metav1.Object) origin {
	out := origin{uid: o.GetUID(), owner: o.GetUID(), made: o.GetCreationTimestamp().Time, rank: o.GetCreationTimestamp().Unix()}
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		out.owner = ref.UID
	}
	// After a rollback the Deployment has an old ReplicaSet with a new revision.
	if n, err := strconv.ParseInt(o.GetAnnotations()[annotationRevision], 10, 64); err == nil {
		out.rank = n
	}
	return out
}

// before reports whether o's state is older than other's: it is another object, which was created earlier or has an earlier revision.
func (o origin) before(other origin) bool {
	switch {
	case o.uid == other.uid:
		return false
	case o.owner == other.owner:
		return o.rank <= other.rank
	}
	return o.made.Before(other.made) // the owner was created anew
}

func (c *Changes) workloadSeen(o metav1.Object, t *corev1.PodTemplateSpec, initial bool) {
	w, ok := rootOf(o)
	if !ok {
		return
	}
	retry := o.GetAnnotations()[objects.AnnotationRetry]
	spec, err := t.Spec.Marshal()
	if err != nil {
		return
	}
	sum := sha256.Sum256(spec)
	now := c.guard.clock.Now()
	after := workloadState{of: originOf(o), template: string(sum[:8]), retry: retry}
	c.mu.Lock()
	before, known := c.workloads[w]
	if known && after.of.before(before.of) {
		c.mu.Unlock()
		return
	}
	known = known && !initial
	changed := known && before.template != after.template
	asks := known && retry != "" && retry != before.retry
	after.retried = before.retried
	if retry == "" {
		after.retry = before.retry // a value that was handled once is not handled again
	}
	wait := retrySpacing - now.Sub(before.retried)
	if asks && wait > 0 {
		after.retry, after.retried = before.retry, before.retried
		c.later[w] = retryLater{before.retried.Add(retrySpacing), o, t}
	} else if asks {
		after.retried = now
		delete(c.later, w)
	}
	asks = asks && wait <= 0
	if _, have := c.workloads[w]; len(c.workloads) >= mostTemplates && !have {
		clear(c.workloads)
	}
	c.workloads[w] = after
	c.mu.Unlock()
	if changed || asks {
		wide := c.poolWide(w)
		c.guard.change(func(k guard.Key) bool { return k.Workload == w }, asks)
		if len(wide) > 0 { // these stop other workloads, too: a retry of this workload is only a change for them, not a retry
			c.guard.change(func(k guard.Key) bool { return wide[k] }, false)
		}
	}
}

// jobAsks handles the retry annotation on a Job that nothing owns: the workload of its pods is their shape (guard.OfShape), not the Job.
func (c *Changes) jobAsks(before, now any) {
	old, _ := before.(*batchv1.Job)
	job, ok := now.(*batchv1.Job)
	if !ok || old == nil || metav1.GetControllerOfNoCopy(job) != nil || job.Annotations[objects.AnnotationRetry] == "" || job.Annotations[objects.AnnotationRetry] == old.Annotations[objects.AnnotationRetry] {
		return
	}
	users := c.usersWhere(func(pod *corev1.Pod) bool { return objects.Controller(pod) == job.UID })
	c.mu.Lock()
	for w := range users {
		state := c.workloads[w]
		if c.guard.clock.Since(state.retried) < retrySpacing {
			delete(users, w)
			continue
		}
		state.retried = c.guard.clock.Now()
		c.workloads[w] = state
	}
	c.mu.Unlock()
	if len(users) > 0 {
		c.guard.change(func(k guard.Key) bool { return users[k.Workload] }, true)
	}
}

// retryLater is an object whose retry annotation changed too soon after the last retry.
type retryLater struct {
	at       time.Time // when it may be handled
	object   metav1.Object
	template *corev1.PodTemplateSpec
}

// retryNow handles retry annotations that came too soon, once it is time.
func (c *Changes) retryNow() {
	now := c.guard.clock.Now()
	var due []retryLater
	c.mu.Lock()
	for w, r := range c.later {
		if !now.Before(r.at) {
			due = append(due, r)
			delete(c.later, w)
		}
	}
	c.mu.Unlock()
	for _, r := range due {
		c.workloadSeen(r.object, r.template, false)
	}
}

// rootOf returns the workload that a controller's pods belong to; false: their workload is their shape (guard.OfShape).
func rootOf(o metav1.Object) (guard.Workload, bool) {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return guard.Workload{Namespace: o.GetNamespace(), Owner: ref.Kind + "/" + ref.Name}, true
	}
	switch o.(type) {
	case *appsv1.ReplicaSet:
		return guard.Workload{Namespace: o.GetNamespace(), Owner: "ReplicaSet/" + o.GetName()}, true
	case *appsv1.StatefulSet:
		return guard.Workload{Namespace: o.GetNamespace(), Owner: "StatefulSet/" + o.GetName()}, true
	}
	return guard.Workload{}, false
}
