package provision

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
)

// ArgsKind of Provision's arguments.
const ArgsKind = "ProvisionArgs"

// Args configure Provision and, through it, the motors that serve it. Names follow Karpenter's settings where it has them.
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// ClusterName tags and names everything that is made in the cloud.
	ClusterName string `json:"clusterName,omitempty"`
	// ClusterEndpoint is the API server's URL as kubelets reach it; empty: asked from EKS.
	ClusterEndpoint string `json:"clusterEndpoint,omitempty"`
	// ClusterCABundle is the API server's CA, base64 PEM; empty: asked from EKS.
	ClusterCABundle string `json:"clusterCABundle,omitempty"`
	// ClusterCIDR is the service network; empty: asked from EKS.
	ClusterCIDR string `json:"clusterCIDR,omitempty"`
	// Region is the AWS region; empty: AWS_REGION or the instance's own.
	Region string `json:"region,omitempty"`
	// VMMemoryOverheadPercent is taken off an instance type's memory until a first node has shown the true value.
	VMMemoryOverheadPercent *float64 `json:"vmMemoryOverheadPercent,omitempty"`
	// ReservedENIs are network interfaces of a node that its pods don't use (custom networking of the CNI).
	ReservedENIs int `json:"reservedENIs,omitempty"`
	// PrefixDelegation: the CNI gives interfaces prefixes of addresses, so that nodes take more pods.
	PrefixDelegation bool `json:"prefixDelegation,omitempty"`

	// InterruptionQueue is the name of the SQS queue that tells about instances that will end; empty: none is read.
	InterruptionQueue string `json:"interruptionQueue,omitempty"`
	// DefaultInstanceProfile is that of Provisioners and AWSNodeTemplates that name none.
	DefaultInstanceProfile string `json:"defaultInstanceProfile,omitempty"`

	// NodePools and EC2NodeClasses are those of this profile alone, beside the objects of these kinds.
	NodePools      []Inline `json:"nodePools,omitempty"`
	EC2NodeClasses []Inline `json:"ec2NodeClasses,omitempty"`
	// NodePoolSelector selects, by their labels, the NodePools and Provisioners in which nodes are built for pods of this profile;
	// nil: all.
	NodePoolSelector *metav1.LabelSelector `json:"nodePoolSelector,omitempty"`

	// NamespaceSelector selects, by their labels, the namespaces whose pods may cause launches; nil: all.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// NodeSurchargeDollarsPerHour is added to the price of every node when plans are compared: what list prices omit.
	NodeSurchargeDollarsPerHour float64 `json:"nodeSurchargeDollarsPerHour,omitempty"`
	// NodeSurcharge is what it was called before. DecodeArgs moves the value, and says so in Warnings.
	NodeSurcharge *float64 `json:"nodeSurcharge,omitempty"`
	// PriceFactors multiply the prices of instance families when plans are compared.
	PriceFactors map[string]float64 `json:"priceFactors,omitempty"`

	// BatchIdleDuration: a burst is planned when no pod has come for so long, BatchMaxDuration: at the latest then.
	BatchIdleDuration *metav1.Duration `json:"batchIdleDuration,omitempty"`
	BatchMaxDuration  *metav1.Duration `json:"batchMaxDuration,omitempty"`
	// RegistrationTimeout is how long after its launch an instance may be without a kubelet that registers its Node.
	RegistrationTimeout *metav1.Duration `json:"registrationTimeout,omitempty"`
	// InitializationTimeout is how long after its registration a Ready node that pods wait for may keep its startup taints.
	InitializationTimeout *metav1.Duration `json:"initializationTimeout,omitempty"`
	// MaxClaimsInFlight caps nodes that are launched and not yet initialized.
	MaxClaimsInFlight *int `json:"maxClaimsInFlight,omitempty"`
	// MaxTerminationsPerMinute bounds how many nodes end per minute by decision of Dovetail.
	MaxTerminationsPerMinute *int `json:"maxTerminationsPerMinute,omitempty"`
	// MaxDollarsPerHour is what nodes may cost in all, in dollars per hour at list price, MaxLaunchesPerMinute how many are launched
	// within a minute at most; 0: no bound. What runs already is never ended for it.
	MaxDollarsPerHour    float64 `json:"maxDollarsPerHour,omitempty"`
	MaxLaunchesPerMinute int     `json:"maxLaunchesPerMinute,omitempty"`
	// NewImageNodes is how many nodes of an image are launched, none of which was ever initialized, before the first one is; a tenth of
	// a plan if that is more. 0: any number.
	NewImageNodes *int `json:"newImageNodes,omitempty"`
	// DisruptionDryRun: what would be ended is said, and nothing is.
	DisruptionDryRun bool `json:"disruptionDryRun,omitempty"`
	// PreemptFirst lets preemption have its try before a node is built, for every pod.
	PreemptFirst bool `json:"preemptFirst,omitempty"`
	// PreferencePolicy is Respect (default) or Ignore.
	PreferencePolicy string `json:"preferencePolicy,omitempty"`
	// MinValuesPolicy is Strict (default), or BestEffort: where a pool's minValues can't be met, what there is will do.
	MinValuesPolicy string `json:"minValuesPolicy,omitempty"`
	// ProvisionFor names other schedulers: nodes are built for pods that they report as unschedulable, and they bind them, once
	// the nodes have registered.
	ProvisionFor []string `json:"provisionFor,omitempty"`
	// SimulationDenyList names plugins of the profile that are left out when plans are verified, because their factories
	// must not run twice.
	SimulationDenyList []string `json:"simulationDenyList,omitempty"`

	// Warnings are what whoever wrote the arguments should know, though they are good.
	Warnings []string `json:"-"`
}

// Inline is an object in the arguments: its name, and the spec as an object of the kind would have it.
type Inline struct {
	Name string          `json:"name,omitempty"`
	Spec json.RawMessage `json:"spec,omitempty"`
}

// maxRegistrationTimeout is beyond what any machine needs.
const maxRegistrationTimeout = 24 * time.Hour

// minInitializationTimeout is what any node has, whatever it lacks.
const minInitializationTimeout = 15 * time.Minute

// Preference policies.
const (
	PreferenceRespect = "Respect"
	PreferenceIgnore  = "Ignore"
)

// Policies for minValues.
const (
	MinValuesStrict     = "Strict"
	MinValuesBestEffort = "BestEffort"
)

// DecodeArgs reads the plugin's arguments strictly: unknown fields are errors, as are values that make no sense. The
// error names the field.
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

// useNewNames moves what is given under an old name to the field of today.
func (a *Args) useNewNames() error {
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
		errs = append(errs, field.Required(path("clusterName"), "instances are tagged and found by it"))
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
	errs = append(errs, a.validateCluster()...)
	errs = append(errs, a.validatePlan()...)
	if a.PreferencePolicy != PreferenceRespect && a.PreferencePolicy != PreferenceIgnore {
		errs = append(errs, field.NotSupported(path("preferencePolicy"), a.PreferencePolicy, []string{PreferenceRespect, PreferenceIgnore}))
	}
	if a.MinValuesPolicy != MinValuesStrict && a.MinValuesPolicy != MinValuesBestEffort {
		errs = append(errs, field.NotSupported(path("minValuesPolicy"), a.MinValuesPolicy, []string{MinValuesStrict, MinValuesBestEffort}))
	}
	for i, name := range a.ProvisionFor {
		if name == "" || slices.Contains(a.ProvisionFor[:i], name) {
			errs = append(errs, field.Invalid(path("provisionFor").Index(i), name, "must be the name of a scheduler, named once"))
		}
	}
	return errs
}
