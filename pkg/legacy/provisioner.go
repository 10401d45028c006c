package legacy

import (
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProvisionerNameLabel is on nodes of a Provisioner, beside the labels that every node has.
const ProvisionerNameLabel = "karpenter.sh/provisioner-name"

// Provisioner defines which nodes may be launched and when they are terminated. It preceded the NodePool; the cloud's settings are
// inline or referenced.
//
// +kubebuilder:object:root=true
type Provisioner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ProvisionerSpec   `json:"spec,omitempty"`
	Status ProvisionerStatus `json:"status,omitempty"`
}

// ProvisionerList is a list of Provisioners.
//
// +kubebuilder:object:root=true
type ProvisionerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Provisioner `json:"items"`
}

// ProvisionerSpec is the user's configuration.
type ProvisionerSpec struct {
	// Annotations, Labels, Taints and StartupTaints are put on nodes.
	Annotations   map[string]string `json:"annotations,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Taints        []corev1.Taint    `json:"taints,omitempty"`
	StartupTaints []corev1.Taint    `json:"startupTaints,omitempty"`
	// Requirements restrict the instances; missing keys have defaults.
	Requirements         []corev1.NodeSelectorRequirement `json:"requirements,omitempty"`
	KubeletConfiguration *KubeletConfiguration            `json:"kubeletConfiguration,omitempty"`
	// Exactly one of Provider and ProviderRef is set.
	Provider    *Provider    `json:"provider,omitempty"`
	ProviderRef *ProviderRef `json:"providerRef,omitempty"`
	// TTLSecondsAfterEmpty is after how many seconds without pods a node is terminated; nil means never. TTLSecondsUntilExpired is the
	// age in seconds at which a node is terminated; nil means never.
	TTLSecondsAfterEmpty   *int64 `json:"ttlSecondsAfterEmpty,omitempty"`
	TTLSecondsUntilExpired *int64 `json:"ttlSecondsUntilExpired,omitempty"`
	// Limits bound the resources of all nodes together.
	Limits *Limits `json:"limits,omitempty"`
	// Weight, 1 to 100: higher is tried first; nil is lowest.
	Weight        *int32         `json:"weight,omitempty"`
	Consolidation *Consolidation `json:"consolidation,omitempty"`
}

// ProviderRef names an AWSNodeTemplate.
type ProviderRef struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
}

// Limits are the resource limits of a Provisioner.
type Limits struct {
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// Consolidation enables the removal or replacement of nodes whose pods could run at lower cost.
type Consolidation struct {
	Enabled *bool `json:"enabled,omitempty"`
}

// KubeletConfiguration holds the kubelet settings that a Provisioner may change.
type KubeletConfiguration struct {
	ClusterDNS                  []string                   `json:"clusterDNS,omitempty"`
	ContainerRuntime            *string                    `json:"containerRuntime,omitempty"`
	MaxPods                     *int32                     `json:"maxPods,omitempty"`
	PodsPerCore                 *int32                     `json:"podsPerCore,omitempty"`
	SystemReserved              corev1.ResourceList        `json:"systemReserved,omitempty"`
	KubeReserved                corev1.ResourceList        `json:"kubeReserved,omitempty"`
	EvictionHard                map[string]string          `json:"evictionHard,omitempty"`
	EvictionSoft                map[string]string          `json:"evictionSoft,omitempty"`
	EvictionSoftGracePeriod     map[string]metav1.Duration `json:"evictionSoftGracePeriod,omitempty"`
	EvictionMaxPodGracePeriod   *int32                     `json:"evictionMaxPodGracePeriod,omitempty"`
	ImageGCHighThresholdPercent *int32                     `json:"imageGCHighThresholdPercent,omitempty"`
	ImageGCLowThresholdPercent  *int32                     `json:"imageGCLowThresholdPercent,omitempty"`
	CPUCFSQuota                 *bool                      `json:"cpuCFSQuota,omitempty"`
}

// ProvisionerStatus is the observed state.
type ProvisionerStatus struct {
	LastScaleTime *metav1.Time `json:"lastScaleTime,omitempty"`
	// Resources is the capacity of all nodes together, Nodes their number.
	Resources  corev1.ResourceList `json:"resources,omitempty"`
	Nodes      *int64              `json:"nodes,omitempty"`
	Conditions []status.Condition  `json:"conditions,omitempty"`
}

// Conditions of a Provisioner, named like those of a NodePool.
const (
	ConditionValidationSucceeded = "ValidationSucceeded"
	ConditionNodeClassReady      = "NodeClassReady"
)

// StatusConditions implements status.Object.
func (p *Provisioner) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions(ConditionValidationSucceeded, ConditionNodeClassReady).For(p, opts...)
}

// GetConditions implements status.Object.
func (p *Provisioner) GetConditions() []status.Condition { return p.Status.Conditions }

// SetConditions implements status.Object.
func (p *Provisioner) SetConditions(c []status.Condition) { p.Status.Conditions = c }
