package binder

import (
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// amounts reads a NodeInfo in capacity units without copying it.
type amounts struct{ fwk.NodeInfo }

var _ ledger.Amounts = amounts{}

// Requested is what bound and assumed pods ask for.
func (a amounts) Requested(r corev1.ResourceName) int64 {
	if r == corev1.ResourcePods {
		return int64(len(a.GetPods()))
	}
	return amount(a.GetRequested(), r)
}

// Allocatable is what the node has for pods.
func (a amounts) Allocatable(r corev1.ResourceName) int64 {
	if r == corev1.ResourcePods {
		return int64(a.GetAllocatable().GetAllowedPodNumber())
	}
	return amount(a.GetAllocatable(), r)
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
