package pending

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// admittedWindow is how recently a pod must have been created to be a sign that its controller is still creating pods.
const admittedWindow = 10 * time.Second

// Owners knows how many more pods the controllers of waiting pods are certain to create. A controller creates its pods one after the other,
// so when a burst is planned most of them are often still missing.
type Owners struct {
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
	jobs         batchlisters.JobLister
	quotas       corelisters.ResourceQuotaLister
	claims       corelisters.PersistentVolumeClaimLister
	pods         corelisters.PodLister
}

// NewOwners returns an Owners that reads from the scheduler's informers. Call it before they start.
func NewOwners(f informers.SharedInformerFactory) *Owners {
	return &Owners{
		replicaSets:  f.Apps().V1().ReplicaSets().Lister(),
		statefulSets: f.Apps().V1().StatefulSets().Lister(),
		jobs:         f.Batch().V1().Jobs().Lister(),
		quotas:       f.Core().V1().ResourceQuotas().Lister(),
		claims:       f.Core().V1().PersistentVolumeClaims().Lister(),
		pods:         f.Core().V1().Pods().Lister(),
	}
}

// wanted returns how many live pods the controller wants and is certain to get. It returns 0 where that is uncertain: the controller fails,
// is paused or makes its pods one by one, or a quota may stop it half-way; and where the zones of existing volumes bind its pods.
func (o *Owners) wanted(namespace string, owner *metav1.OwnerReference) int {
	if o.limited(namespace) {
		return 0
	}
	switch owner.APIVersion + "/" + owner.Kind {
	case "apps/v1/ReplicaSet":
		rs, err := o.replicaSets.ReplicaSets(namespace).Get(owner.Name)
		if err != nil || rs.UID != owner.UID || rs.DeletionTimestamp != nil || rs.Spec.Replicas == nil || failing(rs) {
			return 0
		}
		return int(*rs.Spec.Replicas)
	case "apps/v1/StatefulSet":
		set, err := o.statefulSets.StatefulSets(namespace).Get(owner.Name)
		if err != nil || set.UID != owner.UID || set.DeletionTimestamp != nil || set.Spec.Replicas == nil ||
			set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement || o.volumesWait(set) {
			return 0
		}
		return int(*set.Spec.Replicas)
	case "batch/v1/Job":
		job, err := o.jobs.Jobs(namespace).Get(owner.Name)
		if err != nil || job.UID != owner.UID {
			return 0
		}
		return jobWants(job)
	}
	return 0
}

// volumesWait reports whether a volume exists already for a pod of the set that has no node: such a pod has to go to the zone of its volume, and
// other pods of the set may have to go to other zones.
func (o *Owners) volumesWait(set *appsv1.StatefulSet) bool {
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return false
	}
	first := 0
	if set.Spec.Ordinals != nil {
		first = int(set.Spec.Ordinals.Start)
	}
	for i := range int(*set.Spec.Replicas) {
		name := fmt.Sprintf("%s-%d", set.Name, first+i)
		if pod, err := o.pods.Pods(set.Namespace).Get(name); err == nil && pod.Spec.NodeName != "" {
			continue
		}
		for j := range set.Spec.VolumeClaimTemplates {
			claim, err := o.claims.PersistentVolumeClaims(set.Namespace).Get(set.Spec.VolumeClaimTemplates[j].Name + "-" + name)
			if err == nil && claim.Spec.VolumeName != "" {
				return true
			}
		}
	}
	return false
}

func failing(rs *appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(rs.Status.Conditions, func(c appsv1.ReplicaSetCondition) bool {
		return c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue
	})
}

// jobWants returns how many pods of a Job run at the same time. After a failure the Job controller waits before it makes the next pod, so a
// Job with failures wants none.
func jobWants(job *batchv1.Job) int {
	if job.DeletionTimestamp != nil || job.Spec.Suspend != nil && *job.Spec.Suspend || job.Status.Failed > 0 || job.Status.CompletionTime != nil {
		return 0
	}
	want := 1
	if job.Spec.Parallelism != nil {
		want = int(*job.Spec.Parallelism)
	}
	switch {
	case job.Spec.Completions != nil:
		want = min(want, int(*job.Spec.Completions-job.Status.Succeeded))
	case job.Status.Succeeded > 0: // a work queue whose pods begin to succeed starts no more
		return 0
	}
	return max(want, 0)
}

// limited reports whether the namespace has a ResourceQuota, which may keep controllers from creating their pods.
func (o *Owners) limited(namespace string) bool {
	quotas, err := o.quotas.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil { // a lister on an informer's store doesn't fail
		return true
	}
	return len(quotas) > 0
}

// ownClass returns the class of a waiting pod with that pod as Class.Pod. Pods of several Jobs may be of one class, and the spending guard tells
// their workloads apart.
func ownClass(w ledger.Waiting, pods *Pods) *capacity.Class {
	pod := pods.Get(w.Ref.UID)
	if pod == nil {
		return w.Class
	}
	own := *w.Class
	own.Pod = pod
	return &own
}

// Anticipated returns demand for the anticipated pods: those that controllers of waiting pods have still to create, each of the class of the newest
// waiting pod of its controller. pods.Created counts a controller's live pods; held counts, by controller, the reservations that are kept for pods
// that it has not created yet.
//
// It returns none for a controller whose pods are, or may be, of different classes: a pod takes only a reservation of its own class, so the others
// would end unused, and the next plan would buy them again. The waiting pods tell (a webhook may have changed each of them in its own way), and so
// does the newest by itself (Classes.alike).
func Anticipated(waiting []ledger.Waiting, pods *Pods, owners *Owners, held map[types.UID]int, now time.Time) []capacity.Demand {
	newest := map[types.UID]ledger.Waiting{}
	mixed := map[types.UID]bool{}
	refs := map[types.UID]*metav1.OwnerReference{}
	var order []types.UID
	for _, w := range waiting {
		ref, seen := pods.arrived(w.Ref.UID)
		if ref == nil || now.Sub(seen) > admittedWindow {
			continue
		}
		if _, ok := refs[ref.UID]; !ok {
			order = append(order, ref.UID)
		} else if newest[ref.UID].Class.Key != w.Class.Key {
			mixed[ref.UID] = true
		}
		refs[ref.UID], newest[ref.UID] = ref, w // waiting is in order of arrival, so the newest sibling stays
	}
	var out []capacity.Demand
	for _, uid := range order {
		w := newest[uid]
		if mixed[uid] {
			continue
		}
		n := owners.wanted(w.Ref.Namespace, refs[uid]) - pods.Created(uid) - held[uid]
		if class := ownClass(w, pods); n > 0 && pods.Classes.alike(class.Pod, class) {
			out = append(out, capacity.Demand{Class: class, Owner: uid, Ahead: n})
		}
	}
	slices.SortStableFunc(out, func(a, b capacity.Demand) int { return cmp.Compare(b.Class.Priority, a.Class.Priority) })
	return out
}
