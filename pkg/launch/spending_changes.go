package launch

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// Changes that bear on breakers, by spec and never by status or number of replicas: a probe of ours changes the status of every
// DaemonSet.

const (
	// annotationRetry on a pool, a class or a workload asks, with each new value, to try at once.
	annotationRetry = "dovetail.sh/retry"
	// retrySpacing is how often that is heard of a workload at most: its owner is not who pays.
	retrySpacing = 5 * time.Minute
	// mostTemplates bounds the workloads whose pod templates are remembered.
	mostTemplates = 50_000
)

// PoolChanged says that a pool's spec has changed, or that a user asks for another try of all that keeps it from growing.
func (s *Spending) PoolChanged(pool, class string, retry bool) {
	s.change(func(k guard.Key) bool { return k.Pool == pool || retry && class != "" && k.Class == class }, retry)
}

// ClassChanged says so of a node class. pools are those that use it.
func (s *Spending) ClassChanged(class string, pools []string, retry bool) {
	of := map[string]bool{}
	for _, p := range pools {
		of[p] = true
	}
	s.change(func(k guard.Key) bool { return k.Class == class || k.Pool != "" && of[k.Pool] }, retry)
}

// Watch listens for changes of what pods and daemons are made of. To be called before the informers start.
func (s *Spending) Watch(f informers.SharedInformerFactory) error {
	everywhere := func(k guard.Key) bool { return !k.Machine() }
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{f.Apps().V1().DaemonSets().Informer(), changes(func(ds *appsv1.DaemonSet) any { return ds.Spec.Template.Spec }, func(*appsv1.DaemonSet) { s.change(everywhere, false) })},
		{f.Core().V1().LimitRanges().Informer(), changes(func(l *corev1.LimitRange) any { return l.Spec }, func(*corev1.LimitRange) {
			s.change(everywhere, false) // it sizes workloads and daemons
		})},
		{f.Node().V1().RuntimeClasses().Informer(), changes(func(r *nodev1.RuntimeClass) any { return []any{r.Overhead, r.Scheduling, r.Handler} }, func(*nodev1.RuntimeClass) { s.change(everywhere, false) })},
		{f.Storage().V1().StorageClasses().Informer(), changes(func(c *storagev1.StorageClass) any { c = c.DeepCopy(); c.ObjectMeta = metav1.ObjectMeta{}; return c }, func(*storagev1.StorageClass) { s.change(everywhere, false) })},
		{f.Storage().V1().CSIDrivers().Informer(), changes(func(d *storagev1.CSIDriver) any { return d.Spec }, func(*storagev1.CSIDriver) { s.change(everywhere, false) })},
		{f.Core().V1().PersistentVolumeClaims().Informer(), changes(func(c *corev1.PersistentVolumeClaim) any {
			return []any{c.Spec.VolumeName, c.Status.Phase == corev1.ClaimBound}
		}, func(c *corev1.PersistentVolumeClaim) {
			if users := s.usersOf(c); len(users) > 0 {
				s.change(func(k guard.Key) bool { return users[k.Workload] }, false)
			}
		})},
		{f.Apps().V1().ReplicaSets().Informer(), s.workloadChanges(func(o metav1.Object) *corev1.PodTemplateSpec { return &o.(*appsv1.ReplicaSet).Spec.Template })},
		{f.Apps().V1().StatefulSets().Informer(), s.workloadChanges(func(o metav1.Object) *corev1.PodTemplateSpec { return &o.(*appsv1.StatefulSet).Spec.Template })},
		{f.Batch().V1().Jobs().Informer(), s.workloadChanges(func(o metav1.Object) *corev1.PodTemplateSpec { return &o.(*batchv1.Job).Spec.Template })},
	} {
		if _, err := w.informer.AddEventHandler(w.handler); err != nil {
			return fmt.Errorf("watching what bears on launches: %w", err)
		}
	}
	return nil
}

// usersOf are the workloads whose waiting pods use a claim, if any breaker is open at all.
func (s *Spending) usersOf(c *corev1.PersistentVolumeClaim) map[guard.Workload]bool {
	s.mu.Lock()
	open := slices.ContainsFunc(s.guard.Breakers(), (*guard.Breaker).Open)
	s.mu.Unlock()
	if !open {
		return nil
	}
	out := map[guard.Workload]bool{}
	for _, pod := range s.pending.all() {
		if pod.Namespace == c.Namespace && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == c.Name
		}) {
			out[s.workloadOf(pod)] = true
		}
	}
	return out
}

// changes calls f when what spec gives of an object is not what it was. What is new or gone is a change, too, except for what was
// there before this process.
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
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if t, ok := o.(T); ok {
				f(t)
			}
		},
	}
}

// workloadChanges listens for other pod templates and for the retry annotation. A Deployment's are seen on its ReplicaSets, which
// its controller gives its annotations.
func (s *Spending) workloadChanges(template func(metav1.Object) *corev1.PodTemplateSpec) cache.ResourceEventHandler {
	seen := func(o any) {
		if obj, ok := o.(metav1.Object); ok {
			s.workloadSeen(obj, template(obj))
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, o any) { seen(o) }}
}

// workloadState is what was last seen of a workload.
type workloadState struct {
	template string
	retry    string
	retried  time.Time
}

func (s *Spending) workloadSeen(o metav1.Object, t *corev1.PodTemplateSpec) {
	w, ok := rootOf(o)
	if !ok {
		return
	}
	spec, err := t.Spec.Marshal()
	if err != nil {
		return
	}
	sum := sha256.Sum256(spec)
	template, retry := string(sum[:8]), o.GetAnnotations()[annotationRetry]
	now := s.clock.Now()
	s.mu.Lock()
	before, known := s.workloads[w]
	after := before
	changed := known && before.template != template && newest(o, now)
	again := known && retry != "" && retry != before.retry && now.Sub(before.retried) >= retrySpacing
	if !known || changed {
		after.template = template
	}
	if after.retry = retry; again {
		after.retried = now
	} else if known && retry != before.retry && retry != "" {
		after.retry = before.retry // too soon: it is heard with the next update
	}
	if len(s.workloads) >= mostTemplates && !known {
		clear(s.workloads)
	}
	s.workloads[w] = after
	s.mu.Unlock()
	if changed || again {
		s.change(func(k guard.Key) bool { return k.Workload == w || k.PoolWide() && !again }, again)
	}
}

// newest says that an object was made just now: of a Deployment's ReplicaSets and a CronJob's Jobs the latest counts.
func newest(o metav1.Object, now time.Time) bool {
	return metav1.GetControllerOfNoCopy(o) == nil || now.Sub(o.GetCreationTimestamp().Time) < time.Minute
}

// rootOf is the workload that a controller's pods count for; false: none of their own.
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
