package karpenter

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

// templateKind is the kind that spec.providerRef may name.
const templateKind = "AWSNodeTemplate"

// maxSeconds is the largest duration accepted, in seconds: what a time.Duration holds, rounded down to 285 years.
const maxSeconds = 9_000_000_000

var (
	legacyOperators = sets.New(corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist,
		corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)
	reservable = sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "pid")
	signals    = sets.New("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available")
)

// validateProvisioner returns an error with the path for each invalid field of a Provisioner, except the cloud's settings, which
// LegacyCloud validates. It is at least as strict as the CRD, and a Provisioner that passes yields a NodePool that validatePool
// accepts.
func validateProvisioner(p *legacy.Provisioner, cloud LegacyCloud) field.ErrorList {
	spec, at := &p.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if len(p.Name) > maxLabelValue {
		errs = append(errs, field.TooLong(field.NewPath("metadata", "name"), p.Name, maxLabelValue))
	}
	errs = append(errs, validateLabels(spec.Labels, at.Child("labels"))...)
	for _, key := range slices.Sorted(maps.Keys(spec.Annotations)) {
		errs = append(errs, metav1validation.ValidateLabelName(strings.ToLower(key), at.Child("annotations").Key(key))...)
	}
	seen := map[[2]string]bool{}
	errs = append(errs, validateTaints(spec.Taints, at.Child("taints"), seen)...)
	errs = append(errs, validateTaints(spec.StartupTaints, at.Child("startupTaints"), seen)...)
	errs = append(errs, validateLegacyRequirements(spec, cloud, at.Child("requirements"))...)
	if k := spec.KubeletConfiguration; k != nil {
		errs = append(errs, validateKubelet(k, at.Child("kubeletConfiguration"))...)
	}
	switch ref := spec.ProviderRef; {
	case (ref == nil) == (spec.Provider == nil):
		errs = append(errs, field.Required(at.Child("provider"), "exactly one of provider and providerRef"))
	case ref == nil:
	case ref.Kind != "" && ref.Kind != templateKind:
		errs = append(errs, field.NotSupported(at.Child("providerRef", "kind"), ref.Kind, []string{templateKind}))
	case ref.Name == "":
		errs = append(errs, field.Required(at.Child("providerRef", "name"), "names the AWSNodeTemplate to launch with"))
	}
	errs = append(errs, validateTTLs(spec, at)...)
	if spec.Limits != nil {
		for _, name := range slices.Sorted(maps.Keys(spec.Limits.Resources)) {
			if q := spec.Limits.Resources[name]; q.Sign() < 0 {
				errs = append(errs, field.Invalid(at.Child("limits", "resources").Key(string(name)), q.String(), "must not be negative"))
			}
		}
	}
	if w := spec.Weight; w != nil && (*w < 1 || *w > 100) {
		errs = append(errs, field.Invalid(at.Child("weight"), *w, "must be between 1 and 100"))
	}
	return errs
}

func validateLegacyRequirements(spec *legacy.ProvisionerSpec, cloud LegacyCloud, at *field.Path) (errs field.ErrorList) {
	for i, r := range spec.Requirements {
		at := at.Index(i)
		if !legacyOperators.Has(r.Operator) {
			errs = append(errs, field.NotSupported(at.Child("operator"), r.Operator, sets.List(legacyOperators)))
			continue
		}
		errs = append(errs, validateRequirement(&karpv1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values}, at)...)
	}
	if n := len(spec.Labels) + len(defaultRequirements(spec, cloud)); n > maxRequirements {
		errs = append(errs, field.TooMany(at, n, maxRequirements))
	}
	return errs
}

func validateTTLs(spec *legacy.ProvisionerSpec, at *field.Path) (errs field.ErrorList) {
	if ttl := spec.TTLSecondsAfterEmpty; ttl != nil {
		at := at.Child("ttlSecondsAfterEmpty")
		switch {
		case *ttl < 0 || *ttl > maxSeconds:
			errs = append(errs, field.Invalid(at, *ttl, fmt.Sprintf("must be between 0 and %d", maxSeconds)))
		case consolidates(spec):
			errs = append(errs, field.Forbidden(at, "it and consolidation.enabled exclude each other"))
		}
	}
	// Nodes that expire as soon as they exist would be launched again and again.
	if ttl := spec.TTLSecondsUntilExpired; ttl != nil && (*ttl < 1 || *ttl > maxSeconds) {
		errs = append(errs, field.Invalid(at.Child("ttlSecondsUntilExpired"), *ttl, fmt.Sprintf("must be between 1 and %d", maxSeconds)))
	}
	return errs
}

func validateKubelet(k *legacy.KubeletConfiguration, at *field.Path) (errs field.ErrorList) {
	if r := k.ContainerRuntime; r != nil && *r != "containerd" {
		errs = append(errs, field.NotSupported(at.Child("containerRuntime"), *r, []string{"containerd"}))
	}
	atLeast := func(name string, v *int32, most int32) {
		if v != nil && (*v < 0 || *v > most) {
			errs = append(errs, field.Invalid(at.Child(name), *v, fmt.Sprintf("must be between 0 and %d", most)))
		}
	}
	atLeast("maxPods", k.MaxPods, math.MaxInt32)
	atLeast("podsPerCore", k.PodsPerCore, math.MaxInt32)
	atLeast("evictionMaxPodGracePeriod", k.EvictionMaxPodGracePeriod, math.MaxInt32)
	atLeast("imageGCHighThresholdPercent", k.ImageGCHighThresholdPercent, 100)
	atLeast("imageGCLowThresholdPercent", k.ImageGCLowThresholdPercent, 100)
	if high, low := k.ImageGCHighThresholdPercent, k.ImageGCLowThresholdPercent; high != nil && low != nil && *high < *low {
		errs = append(errs, field.Invalid(at.Child("imageGCHighThresholdPercent"), *high, "must not be below imageGCLowThresholdPercent"))
	}
	for i, a := range k.ClusterDNS {
		if _, err := netip.ParseAddr(a); err != nil {
			errs = append(errs, field.Invalid(at.Child("clusterDNS").Index(i), a, "must be an IP address"))
		}
	}
	for name, list := range map[string]corev1.ResourceList{"kubeReserved": k.KubeReserved, "systemReserved": k.SystemReserved} {
		for _, r := range slices.Sorted(maps.Keys(list)) {
			at := at.Child(name).Key(string(r))
			if !reservable.Has(r) {
				errs = append(errs, field.NotSupported(at, r, sets.List(reservable)))
			} else if q := list[r]; q.Sign() < 0 {
				errs = append(errs, field.Invalid(at, q.String(), "must not be negative"))
			}
		}
	}
	errs = append(errs, validateEviction(k.EvictionHard, at.Child("evictionHard"))...)
	errs = append(errs, validateEviction(k.EvictionSoft, at.Child("evictionSoft"))...)
	errs = append(errs, validateGracePeriods(k.EvictionSoft, k.EvictionSoftGracePeriod, at)...)
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// validateEviction checks eviction thresholds: each is a quantity or a percentage.
func validateEviction(thresholds map[string]string, at *field.Path) (errs field.ErrorList) {
	for _, signal := range slices.Sorted(maps.Keys(thresholds)) {
		at, value := at.Key(signal), thresholds[signal]
		if !signals.Has(signal) {
			errs = append(errs, field.NotSupported(at, signal, sets.List(signals)))
			continue
		}
		if number, percent := strings.CutSuffix(value, "%"); percent {
			if n, err := strconv.ParseFloat(number, 64); err != nil || !(n >= 0 && n <= 100) {
				errs = append(errs, field.Invalid(at, value, "must be a percentage between 0% and 100%"))
			}
		} else if q, err := resource.ParseQuantity(value); err != nil || q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, value, "must be a non-negative quantity or a percentage"))
		}
	}
	return errs
}

// validateGracePeriods checks that each soft threshold has a grace period, and that there are no others.
func validateGracePeriods(soft map[string]string, grace map[string]metav1.Duration, at *field.Path) (errs field.ErrorList) {
	for _, signal := range slices.Sorted(maps.Keys(soft)) {
		if _, ok := grace[signal]; !ok {
			errs = append(errs, field.Required(at.Child("evictionSoftGracePeriod").Key(signal), "evictionSoft names the signal"))
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(grace)) {
		at := at.Child("evictionSoftGracePeriod").Key(signal)
		if _, ok := soft[signal]; !ok {
			errs = append(errs, field.Forbidden(at, "evictionSoft does not name the signal"))
		} else if d := grace[signal].Duration; d < 0 || d > maxSeconds*time.Second {
			errs = append(errs, field.Invalid(at, d.String(), "must not be negative"))
		}
	}
	return errs
}
