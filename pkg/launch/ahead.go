package launch

import (
	"cmp"
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

// admittedWindow is how long ago a pod may have come to count as a sign that more of its kind are being created right now.
const admittedWindow = 10 * time.Second

// Owners tells how many more pods the controllers of waiting pods are certain to create. A
// controller makes its pods one after the other; what has come when a burst is planned is often the smaller part.
type Owners struct {
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
	jobs         batchlisters.JobLister
	quotas       corelisters.ResourceQuotaLister
}

// NewOwners reads from the scheduler's informers. To be called before they start.
func NewOwners(f informers.SharedInformerFactory) *Owners {
	return &Owners{
		replicaSets:  f.Apps().V1().ReplicaSets().Lister(),
		statefulSets: f.Apps().V1().StatefulSets().Lister(),
		jobs:         f.Batch().V1().Jobs().Lister(),
		quotas:       f.Core().V1().ResourceQuotas().Lister(),
	}
}

// wanted is how many live pods the controller wants and will surely get; 0 when that can't be said: it is failing, paused,
// makes its pods one by one, or a quota may stop it half-way.
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
			set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
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

func failing(rs *appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(rs.Status.Conditions, func(c appsv1.ReplicaSetCondition) bool {
		return c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue
	})
}

// jobWants is how many pods of a Job run at the same time. After a failure its controller waits before it makes the next.
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
	case job.Status.Succeeded > 0: // a work queue that is being finished starts no more
		return 0
	}
	return max(want, 0)
}

// limited says that a quota counts the pods of the namespace or what they ask for.
func (o *Owners) limited(namespace string) bool {
	quotas, err := o.quotas.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil { // a lister on an informer's store doesn't fail
		return true
	}
	return len(quotas) > 0
}

// ahead is demand for the pods that controllers of waiting pods have still to create, each of the class of its newest
// sibling. created counts a controller's live pods, held the slots that are kept for it already.
func ahead(waiting []ledger.Waiting, pending *Pending, owners *Owners, held map[types.UID]int, now time.Time) []capacity.Demand {
	newest := map[types.UID]ledger.Waiting{}
	refs := map[types.UID]*metav1.OwnerReference{}
	var order []types.UID
	for _, w := range waiting {
		ref, seen := pending.arrived(w.Ref.UID)
		if ref == nil || now.Sub(seen) > admittedWindow {
			continue
		}
		if _, ok := refs[ref.UID]; !ok {
			order = append(order, ref.UID)
		}
		refs[ref.UID], newest[ref.UID] = ref, w // in the order in which they came
	}
	var out []capacity.Demand
	for _, uid := range order {
		w := newest[uid]
		if n := owners.wanted(w.Ref.Namespace, refs[uid]) - pending.created(uid) - held[uid]; n > 0 {
			out = append(out, capacity.Demand{Class: w.Class, Owner: uid, Ahead: n})
		}
	}
	slices.SortStableFunc(out, func(a, b capacity.Demand) int { return cmp.Compare(b.Class.Priority, a.Class.Priority) })
	return out
}
