package pending

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// WorkloadOf returns the workload that the pod belongs to: the topmost of its controllers that can be read. Pods and Jobs without a
// controller count by their shape: a pipeline that creates a Job a minute is one workload.
func (o *Owners) WorkloadOf(pod *corev1.Pod, class func() *capacity.Class) guard.Workload {
	ref := metav1.GetControllerOfNoCopy(pod)
	for hops := 0; ref != nil && hops < 4; hops++ {
		owner, root := o.above(pod.Namespace, ref)
		if owner == nil {
			if root && ref.Kind == "Job" {
				ref = nil
			}
			break
		}
		ref = owner
	}
	if ref != nil && kindOf(ref) == bufferKind { // the buffer itself counts as the workload: no pod will run on the node to show that it works
		return guard.Workload{Owner: ref.Kind + " " + pod.Namespace + "/" + ref.Name}
	}
	if ref == nil {
		return guard.OfShape(pod.Namespace, class().Shape())
	}
	return guard.Workload{Namespace: pod.Namespace, Owner: ref.Kind + "/" + ref.Name}
}

// bufferKind is the kind of owner of the pods that stand for a CapacityBuffer's chunks in plans.
var bufferKind = schema.GroupKind{Group: "autoscaling.x-k8s.io", Kind: "CapacityBuffer"}

// above returns the controller of a controller; nil: it has none (root), or it can't be read.
func (o *Owners) above(namespace string, ref *metav1.OwnerReference) (owner *metav1.OwnerReference, root bool) {
	var obj metav1.Object
	switch kindOf(ref) {
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		if rs, err := o.replicaSets.ReplicaSets(namespace).Get(ref.Name); err == nil && rs.UID == ref.UID {
			obj = rs
		}
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		if job, err := o.jobs.Jobs(namespace).Get(ref.Name); err == nil && job.UID == ref.UID {
			obj = job
		} else {
			return nil, true // a deleted Job counts as one without a controller
		}
	}
	if obj == nil {
		return nil, false
	}
	owner = metav1.GetControllerOfNoCopy(obj)
	return owner, owner == nil
}

func kindOf(ref *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
}

// Desired returns how many pods the pod's controller wants at once, at least one. live is how many it has, for controllers that can't be
// read.
func (o *Owners) Desired(pod *corev1.Pod, live int) int {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return 1
	}
	want := live
	switch kindOf(ref) {
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		if rs, err := o.replicaSets.ReplicaSets(pod.Namespace).Get(ref.Name); err == nil && rs.Spec.Replicas != nil {
			want = int(*rs.Spec.Replicas)
		}
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "StatefulSet"}:
		if set, err := o.statefulSets.StatefulSets(pod.Namespace).Get(ref.Name); err == nil && set.Spec.Replicas != nil {
			want = int(*set.Spec.Replicas)
		}
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		if job, err := o.jobs.Jobs(pod.Namespace).Get(ref.Name); err == nil && job.Spec.Parallelism != nil {
			want = int(*job.Spec.Parallelism)
		}
	}
	return max(want, 1)
}
