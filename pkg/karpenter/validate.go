package karpenter

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Limits of the CRD, checked again because not every pool comes through a CRD of this version.
const (
	maxMinValues = 50
	maxBudgets   = 50
	maxKey       = 316
)

var (
	operators = sets.New(corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist,
		corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, karpv1.NodeSelectorOpGte, karpv1.NodeSelectorOpLte)
	effects  = sets.New(corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
	policies = sets.New[karpv1.ConsolidationPolicy]("", karpv1.ConsolidationPolicyWhenEmpty, karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
		karpv1.ConsolidationPolicyBalanced)
	reasons     = sets.New(karpv1.DisruptionReasonUnderutilized, karpv1.DisruptionReasonEmpty, karpv1.DisruptionReasonDrifted)
	budgetNodes = regexp.MustCompile(`^((100|[0-9]{1,2})%|[0-9]+)$`)
)

// ValidatePool returns an error with the path for each invalid field of a NodePool. It is at least as strict as Karpenter's own
// runtime validation, and refuses what the API server would refuse on the Node later, for example an empty taint effect. class is the
// only kind of node class that it may refer to.
func ValidatePool(np *karpv1.NodePool, class schema.GroupKind) field.ErrorList {
	spec := field.NewPath("spec")
	template := spec.Child("template")
	errs := validateLabels(np.Spec.Template.Labels, template.Child("metadata", "labels"))
	for _, msg := range validation.IsValidLabelValue(np.Name) { // every claim and Node carries it as a label value
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), np.Name, msg))
	}
	errs = append(errs, apivalidation.ValidateAnnotations(np.Spec.Template.Annotations, template.Child("metadata", "annotations"))...)
	if n := len(np.Spec.Template.Labels) + len(np.Spec.Template.Spec.Requirements); n > maxRequirements {
		errs = append(errs, field.TooMany(template.Child("spec", "requirements"), n, maxRequirements))
	}
	errs = append(errs, validateTemplate(&np.Spec.Template.Spec, class, template.Child("spec"))...)
	for _, name := range slices.Sorted(maps.Keys(np.Spec.Limits)) {
		if q := np.Spec.Limits[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(spec.Child("limits").Key(string(name)), q.String(), "must not be negative"))
		}
	}
	if w := np.Spec.Weight; w != nil && (*w < 1 || *w > 100) {
		errs = append(errs, field.Invalid(spec.Child("weight"), *w, "must be between 1 and 100"))
	}
	if np.Spec.Replicas != nil {
		errs = append(errs, validateStatic(np, spec)...)
	}
	if _, err := maxDollars(np); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(objects.AnnotationMaxDollarsPerHour), np.Annotations[objects.AnnotationMaxDollarsPerHour], err.Error()))
	}
	if _, err := ZoneBalance(np); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(objects.AnnotationZoneBalance), np.Annotations[objects.AnnotationZoneBalance], err.Error()))
	}
	return append(errs, validateDisruption(&np.Spec.Disruption, spec.Child("disruption"))...)
}

func validateStatic(np *karpv1.NodePool, spec *field.Path) (errs field.ErrorList) {
	if r := *np.Spec.Replicas; r < 0 {
		errs = append(errs, field.Invalid(spec.Child("replicas"), r, "must not be negative"))
	}
	if np.Spec.Weight != nil {
		errs = append(errs, field.Forbidden(spec.Child("weight"), "a static pool has no weight"))
	}
	if _, said := np.Annotations[objects.AnnotationZoneBalance]; said {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(objects.AnnotationZoneBalance), "the zones of a static pool's nodes aren't balanced"))
	}
	for _, name := range slices.Sorted(maps.Keys(np.Spec.Limits)) {
		if name != "nodes" {
			errs = append(errs, field.Forbidden(spec.Child("limits").Key(string(name)), "a static pool can only limit nodes"))
		}
	}
	return errs
}

func validateLabels(labels map[string]string, at *field.Path) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := at.Key(key)
		errs = append(errs, metav1validation.ValidateLabelName(key, at)...)
		errs = append(errs, restricted(key, at)...)
		for _, msg := range validation.IsValidLabelValue(labels[key]) {
			errs = append(errs, field.Invalid(at, labels[key], msg))
		}
	}
	return errs
}

// restricted refuses label keys that a pool may not set (Karpenter's label restrictions).
func restricted(key string, at *field.Path) field.ErrorList {
	if key == karpv1.NodePoolLabelKey {
		return field.ErrorList{setByPool(at)}
	}
	return reserved(key, at)
}

func setByPool(at *field.Path) *field.Error {
	return field.Forbidden(at, "the label "+karpv1.NodePoolLabelKey+" is set by the pool itself")
}

func reserved(key string, at *field.Path) field.ErrorList {
	if err := karpv1.IsRestrictedLabel(key); err != nil {
		return field.ErrorList{field.Forbidden(at, "the label "+key+" is reserved")}
	}
	return nil
}

func validateTemplate(t *karpv1.NodeClaimTemplateSpec, class schema.GroupKind, at *field.Path) (errs field.ErrorList) {
	seen := map[[2]string]bool{}
	errs = append(errs, validateTaints(t.Taints, at.Child("taints"), seen)...)
	errs = append(errs, validateTaints(t.StartupTaints, at.Child("startupTaints"), seen)...)
	for i := range t.Requirements {
		errs = append(errs, validateRequirement(&t.Requirements[i], at.Child("requirements").Index(i))...)
	}
	if d := t.ExpireAfter.Duration; d != nil && *d < 0 {
		errs = append(errs, field.Invalid(at.Child("expireAfter"), d.String(), "must not be negative"))
	}
	if d := t.TerminationGracePeriod; d != nil && d.Duration < 0 {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriod"), d.Duration.String(), "must not be negative"))
	}
	at = at.Child("nodeClassRef")
	switch ref := t.NodeClassRef; {
	case ref == nil:
		errs = append(errs, field.Required(at, "names the "+class.Kind+" to launch with"))
	case ref.Name == "":
		errs = append(errs, field.Required(at.Child("name"), "names the "+class.Kind+" to launch with"))
	case len(ref.Name) > validation.LabelValueMaxLength:
		errs = append(errs, field.TooLong(at.Child("name"), ref.Name, validation.LabelValueMaxLength))
	case ref.Group != class.Group:
		errs = append(errs, field.NotSupported(at.Child("group"), ref.Group, []string{class.Group}))
	case ref.Kind != class.Kind:
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, []string{class.Kind}))
	}
	return errs
}

// validateTaints also refuses a key and effect that were seen before, in the same list or in the other one: only one of them would be
// on the Node.
func validateTaints(taints []corev1.Taint, at *field.Path, seen map[[2]string]bool) (errs field.ErrorList) {
	for i, t := range taints {
		at := at.Index(i)
		if t.Key == "" {
			errs = append(errs, field.Required(at.Child("key"), ""))
		} else {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		for _, msg := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
		}
		if !effects.Has(t.Effect) {
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, sets.List(effects)))
		}
		if pair := [2]string{t.Key, string(t.Effect)}; seen[pair] {
			errs = append(errs, field.Duplicate(at, t.Key+":"+string(t.Effect)))
		} else {
			seen[pair] = true
		}
	}
	return errs
}

// validateRequirement validates a requirement of a pool.
func validateRequirement(r *karpv1.NodeSelectorRequirementWithMinValues, at *field.Path) (errs field.ErrorList) {
	if capacity.NormalLabel(r.Key) == karpv1.NodePoolLabelKey {
		return field.ErrorList{setByPool(at.Child("key"))}
	}
	return validateTerm(r, at)
}

// validateTerm validates a requirement on node labels.
func validateTerm(r *karpv1.NodeSelectorRequirementWithMinValues, at *field.Path) (errs field.ErrorList) {
	key, values := capacity.NormalLabel(r.Key), at.Child("values")
	errs = append(errs, metav1validation.ValidateLabelName(r.Key, at.Child("key"))...)
	errs = append(errs, reserved(key, at.Child("key"))...)
	if len(r.Key) > maxKey {
		errs = append(errs, field.TooLong(at.Child("key"), r.Key, maxKey))
	}
	for i, v := range r.Values {
		for _, msg := range validation.IsValidLabelValue(v) {
			errs = append(errs, field.Invalid(values.Index(i), v, msg))
		}
	}
	valid := len(r.Values)
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "the operator In needs at least one value"))
		} else if known, ok := karpv1.WellKnownValuesForRequirements[key]; ok && karpv1.WellKnownLabels.Has(key) {
			if valid = known.Intersection(sets.New(r.Values...)).Len(); valid == 0 {
				errs = append(errs, field.NotSupported(values, strings.Join(r.Values, ","), sets.List(known)))
			}
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Invalid(values, strings.Join(r.Values, ","), fmt.Sprintf("the operator %s takes no values", r.Operator)))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, karpv1.NodeSelectorOpGte, karpv1.NodeSelectorOpLte:
		if n, err := strconv.ParseInt(strings.Join(r.Values, ","), 10, 64); len(r.Values) != 1 || err != nil || n < 0 {
			errs = append(errs, field.Invalid(values, strings.Join(r.Values, ","), fmt.Sprintf("the operator %s needs one non-negative integer", r.Operator)))
		}
	}
	if !operators.Has(r.Operator) {
		errs = append(errs, field.NotSupported(at.Child("operator"), r.Operator, sets.List(operators)))
	}
	if n := r.MinValues; n != nil {
		switch {
		case *n < 1 || *n > maxMinValues:
			errs = append(errs, field.Invalid(at.Child("minValues"), *n, fmt.Sprintf("must be between 1 and %d", maxMinValues)))
		case r.Operator == corev1.NodeSelectorOpIn && valid < *n:
			errs = append(errs, field.Invalid(at.Child("minValues"), *n, fmt.Sprintf("there are only %d valid values to choose from", valid)))
		}
	}
	return errs
}

func validateDisruption(d *karpv1.Disruption, at *field.Path) (errs field.ErrorList) {
	if after := d.ConsolidateAfter.Duration; after != nil && *after < 0 {
		errs = append(errs, field.Invalid(at.Child("consolidateAfter"), after.String(), "must not be negative"))
	}
	if !policies.Has(d.ConsolidationPolicy) {
		errs = append(errs, field.NotSupported(at.Child("consolidationPolicy"), d.ConsolidationPolicy, sets.List(policies)[1:]))
	}
	if n := len(d.Budgets); n > maxBudgets {
		errs = append(errs, field.TooMany(at.Child("budgets"), n, maxBudgets))
	}
	for i := range d.Budgets {
		b, at := &d.Budgets[i], at.Child("budgets").Index(i)
		if !budgetNodes.MatchString(b.Nodes) {
			errs = append(errs, field.Invalid(at.Child("nodes"), b.Nodes, "must be a count or a percentage up to 100%"))
		}
		for j, r := range b.Reasons {
			if !reasons.Has(r) {
				errs = append(errs, field.NotSupported(at.Child("reasons").Index(j), r, sets.List(reasons)))
			}
		}
		if (b.Schedule == nil) != (b.Duration == nil) {
			errs = append(errs, field.Invalid(at, b.Nodes, "schedule and duration go together"))
		} else if _, err := b.IsActive(clock.RealClock{}); err != nil {
			errs = append(errs, field.Invalid(at.Child("schedule"), *b.Schedule, err.Error()))
		}
	}
	return errs
}

// JoinErrors returns a message short enough for a condition: the first five errors and how many more there are.
func JoinErrors(errs field.ErrorList) string {
	const most = 5
	var out []string
	for _, err := range errs[:min(most, len(errs))] {
		out = append(out, err.Error())
	}
	if more := len(errs) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}
