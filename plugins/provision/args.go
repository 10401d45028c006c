package provision

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
)

// ArgsKind is the kind of Provision's arguments.
const ArgsKind = "ProvisionArgs"

// Args configures Provision and, through it, the controllers behind it. Names follow Karpenter's settings where it has them.
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// ClusterName is the tag and the name prefix of everything that is created in the cloud.
	ClusterName string `json:"clusterName,omitempty"`
	// ClusterEndpoint is the API server's URL as kubelets reach it; empty: read from EKS.
	ClusterEndpoint string `json:"clusterEndpoint,omitempty"`
	// ClusterCABundle is the API server's CA, base64 PEM; empty: read from EKS.
	ClusterCABundle string `json:"clusterCABundle,omitempty"`
	// ClusterCIDR is the service network; empty: read from EKS.
	ClusterCIDR string `json:"clusterCIDR,omitempty"`
	// Region is the AWS region; empty: AWS_REGION.
	Region string `json:"region,omitempty"`
	// VMMemoryOverheadPercent is the fraction of an instance type's memory (0.075 is 7.5 %) that is subtracted until a first node has
	// shown the true value.
	VMMemoryOverheadPercent *float64 `json:"vmMemoryOverheadPercent,omitempty"`
	// ReservedENIs is how many network interfaces of a node its pods don't use (custom networking of the CNI).
	ReservedENIs int `json:"reservedENIs,omitempty"`
	// PrefixDelegation: the CNI assigns prefixes of addresses to interfaces, so that nodes take more pods.
	PrefixDelegation bool `json:"prefixDelegation,omitempty"`

	// InterruptionQueue is the name of the SQS queue with notices about instances that will be interrupted; empty: none is read.
	InterruptionQueue string `json:"interruptionQueue,omitempty"`
	// DefaultInstanceProfile is the instance profile of Provisioners and AWSNodeTemplates that name none.
	DefaultInstanceProfile string `json:"defaultInstanceProfile,omitempty"`

	// DisableDryRun: EC2 isn't asked with dry runs whether the role may launch from an EC2NodeClass, before nodes are launched from it.
	DisableDryRun bool `json:"disableDryRun,omitempty"`

	// EnableZonalShift: nothing is launched in zones that traffic of the EKS cluster is shifted away from.
	EnableZonalShift bool `json:"enableZonalShift,omitempty"`

	// Name tells this Dovetail from others in the cluster. It needs a NodePoolSelector in each profile then; empty: it is the only one.
	Name string `json:"name,omitempty"`

	// NodePools and EC2NodeClasses belong to this profile alone, in addition to the cluster's objects of these kinds.
	NodePools      []Inline `json:"nodePools,omitempty"`
	EC2NodeClasses []Inline `json:"ec2NodeClasses,omitempty"`
	// NodePoolSelector selects, by their labels, the NodePools and Provisioners from which nodes are launched for pods of this profile;
	// nil: all.
	NodePoolSelector *metav1.LabelSelector `json:"nodePoolSelector,omitempty"`

	// NamespaceSelector selects, by their labels, the namespaces whose pods may cause launches; nil: all.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// NodeSurchargeDollarsPerHour is added to the price of every node when plans are compared: what list prices omit.
	NodeSurchargeDollarsPerHour float64 `json:"nodeSurchargeDollarsPerHour,omitempty"`
	// NodeSurcharge is the former name of NodeSurchargeDollarsPerHour. DecodeArgs moves the value there, and says so in Warnings.
	NodeSurcharge *float64 `json:"nodeSurcharge,omitempty"`
	// PriceFactors multiply the prices of instance families when plans are compared.
	PriceFactors map[string]float64 `json:"priceFactors,omitempty"`

	// Commitments are paid whether they are used or not (Savings Plans): until one is used up, what it covers costs nothing when plans are compared.
	Commitments []Commitment `json:"commitments,omitempty"`

	// A batch of pods is planned when no pod has arrived for BatchIdleDuration, or at the latest after BatchMaxDuration.
	BatchIdleDuration *metav1.Duration `json:"batchIdleDuration,omitempty"`
	BatchMaxDuration  *metav1.Duration `json:"batchMaxDuration,omitempty"`
	// RegistrationTimeout is how long after its launch an instance may take until its kubelet registers its Node.
	RegistrationTimeout *metav1.Duration `json:"registrationTimeout,omitempty"`
	// InitializationTimeout is how long after its registration a Ready node that pods wait for may keep its startup taints.
	InitializationTimeout *metav1.Duration `json:"initializationTimeout,omitempty"`
	// Limits is what the nodes of all NodePools and Provisioners, and of the profiles' own pools, may have together, in addition to each pool's
	// spec.limits and in the same form: "nodes" counts nodes. A resource not listed is not limited. Running nodes are never ended because of it.
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// MaxClaimsInFlight limits the nodes that are launched and not yet initialized.
	MaxClaimsInFlight *int `json:"maxClaimsInFlight,omitempty"`
	// MaxTerminationsPerMinute limits how many nodes Dovetail may decide to end per minute.
	MaxTerminationsPerMinute *int `json:"maxTerminationsPerMinute,omitempty"`
	// MaxDollarsPerHour limits what all nodes together may cost, in dollars per hour at list price, and MaxLaunchesPerMinute how many nodes are
	// launched within a minute; 0: no limit. Running nodes are never ended because of these limits.
	MaxDollarsPerHour    float64 `json:"maxDollarsPerHour,omitempty"`
	MaxLaunchesPerMinute int     `json:"maxLaunchesPerMinute,omitempty"`
	// NewImageNodes is how many nodes of an image may be launched before one of that image has ever been initialized, or a tenth of a
	// plan if that is more. 0: any number.
	NewImageNodes *int `json:"newImageNodes,omitempty"`
	// DisruptionDryRun: nodes that would be ended are reported, and not ended.
	DisruptionDryRun bool `json:"disruptionDryRun,omitempty"`
	// PreemptFirst makes preemption try first, for every pod, before a node is launched for it.
	PreemptFirst bool `json:"preemptFirst,omitempty"`
	// PreferencePolicy says whether plans take the preferred constraints of pods into account: Respect (default) or Ignore.
	PreferencePolicy string `json:"preferencePolicy,omitempty"`
	// MinValuesPolicy is Strict (default), or BestEffort: if a pool's minValues can't be met, as many values as there are suffice.
	MinValuesPolicy string `json:"minValuesPolicy,omitempty"`
	// ProvisionFor names other schedulers. Nodes are launched for pods that they report as unschedulable, and they bind these pods once
	// the nodes have registered.
	ProvisionFor []string `json:"provisionFor,omitempty"`
	// SimulationDenyList names plugins of the profile that are left out when plans are verified, because their factories must not run
	// twice.
	SimulationDenyList []string `json:"simulationDenyList,omitempty"`

	// DynamicResources makes nodes be launched for pods whose ResourceClaims need devices, where it is known which devices a new node has.
	DynamicResources bool `json:"dynamicResources,omitempty"`

	// MetricsBindAddress is the address (":8080") at which metrics are served over plain HTTP, too; empty: only the scheduler's own port
	// serves them.
	MetricsBindAddress string `json:"metricsBindAddress,omitempty"`
	// DisableClusterStateObservability leaves out metrics with a series per node or pod.
	DisableClusterStateObservability bool `json:"disableClusterStateObservability,omitempty"`

	// Warnings are for whoever wrote the arguments: the arguments are valid, but may not do what was meant.
	Warnings []string `json:"-"`
}

// Commitment is money that is paid for on-demand instances per hour, such as an AWS Savings Plan.
type Commitment struct {
	// Name is a DNS label, unique among the commitments.
	Name string `json:"name,omitempty"`
	// DollarsPerHour is the amount, RateFactor what an instance uses of it as a fraction of its list price: 0 < f <= 1.
	DollarsPerHour float64 `json:"dollarsPerHour,omitempty"`
	RateFactor     float64 `json:"rateFactor,omitempty"`
	// InstanceFamilies may use it; empty: all.
	InstanceFamilies []string `json:"instanceFamilies,omitempty"`
}

// Inline is an object in the arguments: a name, and the spec that an object of the kind would have.
type Inline struct {
	Name string          `json:"name,omitempty"`
	Spec json.RawMessage `json:"spec,omitempty"`
}

// maxRegistrationTimeout is longer than any instance needs.
const maxRegistrationTimeout = 24 * time.Hour

// minInitializationTimeout is the smallest value that InitializationTimeout may have.
const minInitializationTimeout = 15 * time.Minute

// Values of PreferencePolicy.
const (
	PreferenceRespect = "Respect"
	PreferenceIgnore  = "Ignore"
)

// Values of MinValuesPolicy.
const (
	MinValuesStrict     = "Strict"
	MinValuesBestEffort = "BestEffort"
)

// DecodeArgs reads the plugin's arguments strictly: unknown fields and invalid values are errors that name the field.
func DecodeArgs(obj runtime.Object) (*Args, error) {
	args := &Args{}
	if err := pluginargs.Decode(obj, ArgsKind, args); err != nil {
		return nil, fmt.Errorf("%s arguments: %w", Name, err)
	}
	if err := args.useNewNames(); err != nil {
		return nil, fmt.Errorf("%s arguments: %w", Name, err)
	}
	args.setDefaults()
	if errs := args.validate(); len(errs) > 0 {
		return nil, fmt.Errorf("%s arguments: %w", Name, errs.ToAggregate())
	}
	return args, nil
}

// useNewNames moves values that are given under an old name to the current field.
func (a *Args) useNewNames() error {
	if a.APIVersion == pluginargs.Former {
		a.APIVersion = pluginargs.GroupVersion
		a.Warnings = append(a.Warnings, "apiVersion "+pluginargs.Former+" is called "+pluginargs.GroupVersion+" now")
	}
	if a.NodeSurcharge == nil {
		return nil
	}
	if a.NodeSurchargeDollarsPerHour != 0 {
		return field.Forbidden(field.NewPath("nodeSurcharge"), "is the old name of nodeSurchargeDollarsPerHour, which is there, too")
	}
	a.NodeSurchargeDollarsPerHour, a.NodeSurcharge = *a.NodeSurcharge, nil
	a.Warnings = append(a.Warnings, "nodeSurcharge is called nodeSurchargeDollarsPerHour now")
	return nil
}

func (a *Args) setDefaults() {
	def := func(d **metav1.Duration, v time.Duration) {
		if *d == nil {
			*d = &metav1.Duration{Duration: v}
		}
	}
	def(&a.BatchIdleDuration, 300*time.Millisecond)
	def(&a.BatchMaxDuration, 3*time.Second)
	def(&a.RegistrationTimeout, 15*time.Minute)
	def(&a.InitializationTimeout, time.Hour)
	if a.MaxClaimsInFlight == nil {
		n := 1000
		a.MaxClaimsInFlight = &n
	}
	if a.NewImageNodes == nil {
		n := 20
		a.NewImageNodes = &n
	}
	if a.MaxTerminationsPerMinute == nil {
		n := 100
		a.MaxTerminationsPerMinute = &n
	}
	if a.VMMemoryOverheadPercent == nil {
		p := 0.075
		a.VMMemoryOverheadPercent = &p
	}
	if a.PreferencePolicy == "" {
		a.PreferencePolicy = PreferenceRespect
	}
	if a.MinValuesPolicy == "" {
		a.MinValuesPolicy = MinValuesStrict
	}
	if a.SimulationDenyList == nil {
		a.SimulationDenyList = []string{"Coscheduling"}
	}
}

func (a *Args) validate() field.ErrorList {
	errs := pluginargs.ValidateKind(a.TypeMeta, ArgsKind)
	path := func(name string) *field.Path { return field.NewPath(name) }
	if a.ClusterName == "" {
		errs = append(errs, field.Required(path("clusterName"), "instances get it as a tag, and are found by that tag"))
	} else if !clusterForm.MatchString(a.ClusterName) || a.ClusterName == placeholder {
		errs = append(errs, field.Invalid(path("clusterName"), a.ClusterName, "must be the name of the cluster, of the form "+clusterForm.String()))
	}
	positive := func(name string, d *metav1.Duration) {
		if d.Duration <= 0 {
			errs = append(errs, field.Invalid(path(name), d.Duration.String(), "must be positive"))
		}
	}
	positive("batchIdleDuration", a.BatchIdleDuration)
	positive("batchMaxDuration", a.BatchMaxDuration)
	if a.BatchMaxDuration.Duration < a.BatchIdleDuration.Duration {
		errs = append(errs, field.Invalid(path("batchMaxDuration"), a.BatchMaxDuration.Duration.String(), "must not be below batchIdleDuration"))
	}
	positive("registrationTimeout", a.RegistrationTimeout)
	if a.RegistrationTimeout.Duration > maxRegistrationTimeout {
		errs = append(errs, field.Invalid(path("registrationTimeout"), a.RegistrationTimeout.Duration.String(), fmt.Sprintf("must not be above %v", maxRegistrationTimeout)))
	}
	if d := a.InitializationTimeout.Duration; d < minInitializationTimeout || d > maxRegistrationTimeout {
		errs = append(errs, field.Invalid(path("initializationTimeout"), d.String(), fmt.Sprintf("must be between %v and %v", minInitializationTimeout, maxRegistrationTimeout)))
	}
	if *a.MaxClaimsInFlight < 1 {
		errs = append(errs, field.Invalid(path("maxClaimsInFlight"), *a.MaxClaimsInFlight, "must be at least 1"))
	}
	if *a.MaxTerminationsPerMinute < 1 {
		errs = append(errs, field.Invalid(path("maxTerminationsPerMinute"), *a.MaxTerminationsPerMinute, "must be at least 1; disruptionDryRun ends no node for being empty or expired"))
	}
	if d := a.MaxDollarsPerHour; !(d >= 0) || math.IsInf(d, 0) {
		errs = append(errs, field.Invalid(path("maxDollarsPerHour"), d, "must be an amount of dollars, or 0 for no bound"))
	}
	if a.MaxLaunchesPerMinute < 0 {
		errs = append(errs, field.Invalid(path("maxLaunchesPerMinute"), a.MaxLaunchesPerMinute, "must not be negative"))
	}
	if *a.NewImageNodes < 0 {
		errs = append(errs, field.Invalid(path("newImageNodes"), *a.NewImageNodes, "must not be negative"))
	}
	if p := *a.VMMemoryOverheadPercent; p < 0 || p >= 1 {
		errs = append(errs, field.Invalid(path("vmMemoryOverheadPercent"), p, "is a fraction: 0 <= x < 1"))
	}
	if a.ReservedENIs < 0 {
		errs = append(errs, field.Invalid(path("reservedENIs"), a.ReservedENIs, "is a number of network interfaces"))
	}
	errs = append(errs, a.validateName()...)
	errs = append(errs, a.validateCluster()...)
	errs = append(errs, a.validateMetrics()...)
	errs = append(errs, a.validatePlan()...)
	errs = append(errs, a.validateLimits()...)
	if a.PreferencePolicy != PreferenceRespect && a.PreferencePolicy != PreferenceIgnore {
		errs = append(errs, field.NotSupported(path("preferencePolicy"), a.PreferencePolicy, []string{PreferenceRespect, PreferenceIgnore}))
	}
	if a.MinValuesPolicy != MinValuesStrict && a.MinValuesPolicy != MinValuesBestEffort {
		errs = append(errs, field.NotSupported(path("minValuesPolicy"), a.MinValuesPolicy, []string{MinValuesStrict, MinValuesBestEffort}))
	}
	for i, name := range a.ProvisionFor {
		if name == "" || slices.Contains(a.ProvisionFor[:i], name) {
			errs = append(errs, field.Invalid(path("provisionFor").Index(i), name, "must be the name of a scheduler, and not be listed twice"))
		}
	}
	return errs
}
