package binder

import (
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// amounts reads a NodeInfo in the units of pkg/capacity (millicores of CPU, bytes of memory), without copying it.
type amounts struct {
	fwk.NodeInfo
	class Classifier
}

var _ ledger.Amounts = amounts{}

// Requested returns what bound and assumed pods request.
func (a amounts) Requested(r corev1.ResourceName) int64 {
	if r == corev1.ResourcePods {
		return int64(len(a.GetPods()))
	}
	return amount(a.GetRequested(), r)
}

// Allocatable returns what the node has for pods.
func (a amounts) Allocatable(r corev1.ResourceName) int64 {
	if r == corev1.ResourcePods {
		return int64(a.GetAllocatable().GetAllowedPodNumber())
	}
	return amount(a.GetAllocatable(), r)
}

// Volumes returns how many of the driver's volumes the pods on the node use. A volume that several pods share is counted once for each of
// them. That is good enough to protect reservations; NodeVolumeLimits checks the limit itself. Volumes is called only for pods with
// volumes, on nodes where more volumes are planned.
func (a amounts) Volumes(driver string) int64 {
	n := int64(0)
	for _, p := range a.GetPods() {
		if pod := p.GetPod(); claims(pod) {
			if c, err := a.class.Class(pod); err == nil {
				n += c.Volumes[driver]
			}
		}
	}
	return n
}

// Daemon reports whether a pod of the DaemonSet (namespace/name) is on the node. It looks at every pod there, but is called only for nodes on which
// pods of DaemonSets are still expected.
func (a amounts) Daemon(key string) bool {
	for _, p := range a.GetPods() {
		if key != "" && objects.DaemonSetKey(p.GetPod()) == key {
			return true
		}
	}
	return false
}

func claims(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	return false
}

func amount(from fwk.Resource, r corev1.ResourceName) int64 {
	switch r {
	case corev1.ResourceCPU:
		return from.GetMilliCPU()
	case corev1.ResourceMemory:
		return from.GetMemory()
	case corev1.ResourceEphemeralStorage:
		return from.GetEphemeralStorage()
	}
	return from.GetScalarResources()[r]
}
