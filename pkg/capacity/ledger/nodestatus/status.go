// Package nodestatus says which pods a Node can take, by what the scheduler's cache shows of it.
package nodestatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/reasons"
)

// NothingCertain stands for a node that may have less of every resource than planned until its kubelet has registered, because its user data
// can't be read.
const NothingCertain = -1

// Status is what the scheduler's cache shows of a Node.
type Status struct {
	ProviderID string
	// Managed: the node belongs to a pool, and the ledger watches it until it is Initialized.
	Managed     bool
	Registered  bool
	Initialized bool
	// KubeletReady: the kubelet reports Ready. Ready: it does, and the not-ready taint, which is removed a little later, is gone.
	KubeletReady, Ready bool
	// Labels are shared and must not be changed; nil: not known.
	Labels map[string]string
	// Taints are those the scheduler sees, without those that the informer's transform hides.
	Taints []corev1.Taint
	// Expected are taints that nodes of its pool are known to get although the pool doesn't declare them.
	Expected []corev1.Taint
	// Memory is what is known of its memory for pods.
	Memory Memory
	// Drivers are the CSI drivers on its CSINode and, in the form of capacity.StorageOf, the storage classes with capacity published for
	// it.
	Drivers []string
	// VolumeLimits is how many volumes of a driver can be attached, and how many bytes of storage are published. What is not listed has
	// no limit.
	VolumeLimits map[string]int64
}

// Memory is what is known of a node's memory for pods.
type Memory struct {
	// Certain is how many bytes the node has in any case, or how many it has, if its kubelet has posted them. 0: as many as were planned.
	// NothingCertain: until its kubelet has registered, it may have less than planned of every resource.
	Certain int64
	// Posted: its kubelet has posted its status, if only before it is registered.
	Posted bool
}

// Waits returns why pods of the class can't be bound to the node yet, or nil if they can; bind is the earliest time for them.
func (s *Status) Waits(c *capacity.Class, bind capacity.BindTime) error {
	if !s.Managed {
		return nil
	}
	if !s.Initialized {
		switch {
		case s.Memory.Certain == NothingCertain && !s.Registered:
			return reasons.ErrUnread
		case bind == capacity.BindInitialized, bind == capacity.BindReady && !s.Ready, bind == capacity.BindRegistered && !s.Registered:
			return reasons.NotYet{Class: c}
		}
		// Once the node is initialized, a taint is not waited for: the filters refuse the node and the pod is planned again.
		if t := capacity.Untolerated(c.Tolerations, s.Taints); t != nil {
			return reasons.Tainted{Taint: t}
		}
		if t := capacity.Untolerated(c.Tolerations, s.Expected); t != nil && !s.Ready {
			return reasons.Undeclared{Taint: t}
		}
	}
	for _, d := range c.Drivers {
		if !slices.Contains(s.Drivers, d) {
			return reasons.NoDriver(d)
		}
	}
	return nil
}

// Surprises returns the NoExecute taints (capacity.OthersTaint) that a later status shows, although the kubelet was Ready without them before. The
// node's pods were bound by then: the controller that added the taint may do so whenever pods come, and never remove it.
func (s *Status) Surprises(later *Status) []corev1.Taint {
	if !s.KubeletReady || s.Initialized {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(later.Taints), func(t corev1.Taint) bool { return !capacity.OthersTaint(&t) || Has(s.Taints, &t) })
}

// Drives reports whether the node, which isn't initialized, has one of the surprises that plans would take for a startup taint because other nodes of
// the pool got it before they were Ready. Such a taint is not waited for (docs/design/undeclared.md): the node gets no further pods.
func (s *Status) Drives(surprises []corev1.Taint) bool {
	return !s.Initialized && slices.ContainsFunc(surprises, func(t corev1.Taint) bool { return Has(s.Taints, &t) && Has(s.Expected, &t) })
}

// Has reports whether one of the taints has the key and the effect of t.
func Has(taints []corev1.Taint, t *corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(have corev1.Taint) bool { return have.MatchTaint(t) })
}

// Uncertain reports whether pods of the class need memory, of which the node may turn out to have less than planned.
func (s *Status) Uncertain(c *capacity.Class) bool {
	return s.Memory.Certain > 0 && !s.Memory.Posted && c.Requests[corev1.ResourceMemory] > 0
}
