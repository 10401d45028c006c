package capacity

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// ClassKey is the hash of everything about a pod that scheduling can depend on. Pods with the same key are interchangeable.
type ClassKey string

// PodRef names a pod.
type PodRef struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
}

// BindTime is the earliest time at which a pod may be bound to a planned node. docs/early-binding.md gives the reasons.
type BindTime int

const (
	// BindEarly: as soon as the Node object exists in the scheduler's cache.
	BindEarly BindTime = iota
	// BindRegistered: when the kubelet has registered. For pods that no controller recreates.
	BindRegistered
	// BindReady: when the node is Ready and its not-ready taint is gone. For pods that tolerate that taint only for a short time: bound earlier, they
	// would be evicted before the node is Ready.
	BindReady
	// BindInitialized: when the node is Ready, startup taints are gone and extended resources present. For pods that request
	// device-plugin resources or a pod security group.
	BindInitialized
)

// Class is the equivalence class of a pod: pods of a class are interchangeable for scheduling.
type Class struct {
	Key ClassKey
	// Pod is one of the class's pods. It is shared and must not be changed.
	Pod *corev1.Pod

	Namespace string
	Labels    map[string]string
	Priority  int32
	// Requests includes init containers, sidecars, overhead, pod-level requests, and one "pods".
	Requests Resources
	// Terms are the required node terms, ORed: node selector, required node affinity and volume zones, intersected. Empty: any node. A
	// nil Requirements inside matches any node.
	Terms []Requirements
	// withoutVolumes is Terms without the terms from volumes; nil: there are no terms from volumes. Topology spread considers the nodes that match it.
	withoutVolumes *[]Requirements
	// Preferred are the preferred node terms, heaviest first.
	Preferred             []PreferredTerm
	Tolerations           []corev1.Toleration
	Spread                []SpreadConstraint
	Affinity              []PodTerm              // required
	AntiAffinity          []PodTerm              // required
	PreferredAffinity     []PodTerm              // Weight > 0
	PreferredAntiAffinity []PodTerm              // Weight > 0
	HostPorts             []corev1.ContainerPort // only those with HostPort > 0
	// Volumes is the number of CSI volumes that count against a node's attach limit, by driver name. Keys of StorageOf and DevicesOf are in it, too:
	// the bytes that the pod's volumes take of the node's storage, and 1 for devices.
	Volumes map[string]int64

	// Bind is the earliest safe time to bind pods of this class. BindReason is why that is not BindEarly, worded for an event.
	Bind       BindTime
	BindReason string
	// ByOthers: another scheduler binds these pods, where and when it likes. Their reservations only keep off pods of our own profiles.
	ByOthers bool
	// Drivers are the CSI drivers that must be on the node's CSINode before pods of this class may be bound.
	Drivers []string
	// Request is the name of the ProvisioningRequest whose booked capacity its pods use; empty: none.
	Request string
}

// Scheduler returns the name of the pods' scheduler, which is part of Key.
func (c *Class) Scheduler() string {
	if c.Pod == nil {
		return ""
	}
	return c.Pod.Spec.SchedulerName
}

// TermsWithoutVolumes returns the required node terms without those from volumes. Topology spread considers the nodes that match these terms.
func (c *Class) TermsWithoutVolumes() []Requirements {
	if c.withoutVolumes != nil {
		return *c.withoutVolumes
	}
	return c.Terms
}

// PreferredTerm is a node preference.
type PreferredTerm struct {
	Weight int32
	Term   Requirements
}

// SpreadConstraint is a topologySpreadConstraint with matchLabelKeys merged into its selector.
type SpreadConstraint struct {
	TopologyKey       string
	MaxSkew           int32
	MinDomains        int32 // 0: unset
	Selector          labels.Selector
	Hard              bool // DoNotSchedule
	NodeAffinityHonor bool // nodeAffinityPolicy, default true
	NodeTaintsHonor   bool // nodeTaintsPolicy, default false
}

// PodTerm is a pod (anti-)affinity term.
type PodTerm struct {
	TopologyKey string
	// Namespaces are the namespaces that the term selects pods from, besides those that NamespaceSelector matches (nil: none). For a term that names
	// neither, it is the pod's own namespace.
	Namespaces        []string
	NamespaceSelector labels.Selector
	Selector          labels.Selector
	Weight            int32
}

// Demand is a number of pods of one class that need capacity.
type Demand struct {
	Class *Class
	// Pods are in the order in which they are to be placed.
	Pods []PodRef
	// Owner, if set, is certain to create Ahead pods (anticipated pods). Pods is empty then, and Class.Pod is one of the pods that Owner has created.
	Owner types.UID
	Ahead int
	// Gang, if set, is planned as a whole or not at all, together with every other Demand of the same gang.
	Gang *Gang
}

// Gang is a group of pods that start together.
type Gang struct {
	Key string
	// Missing is how many of the pods must be placed for the plan to be of use.
	Missing int
}

// NamespaceLabels returns the labels of a namespace for namespaceSelector, or nil if they are unknown.
type NamespaceLabels func(namespace string) labels.Set
