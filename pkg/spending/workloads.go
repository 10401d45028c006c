package spending

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
)

// workloads knows which pods wait, and which workload a pod belongs to.
type workloads struct {
	owners *pending.Owners
	pods   *pending.Pods
}

// of returns the workload that the pod belongs to.
func (all workloads) of(pod *corev1.Pod) guard.Workload {
	return all.owners.WorkloadOf(pod, func() *capacity.Class {
		class, err := all.pods.Classes.Class(pod)
		if err != nil {
			return &capacity.Class{Namespace: pod.Namespace}
		}
		return class
	})
}

// desired returns how many pods the controller of the pod wants.
func (all workloads) desired(pod *corev1.Pod) int {
	return all.owners.Desired(pod, all.pods.Created(objects.Controller(pod)))
}

// waits reports whether one of these very pods still waits. Other pods of their workload don't count: they may replace pods that a user deleted.
func (all workloads) waits(wanted map[types.UID]guard.Workload) bool {
	for uid := range wanted {
		if all.pods.Get(uid) != nil {
			return true
		}
	}
	return false
}

// addWorkload adds a workload that isn't in the list yet. An instance is recorded for a limited number; more would tell nothing new.
func addWorkload(all []guard.Workload, w guard.Workload) []guard.Workload {
	const most = 100
	if len(all) >= most || slices.Contains(all, w) {
		return all
	}
	return append(all, w)
}
