package karpenter

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// overlay is a parsed NodeOverlay: which nodes it applies to, split by the source of the labels that it selects, and what it changes.
type overlay struct {
	name   string
	weight int32
	// requirements on labels of the pool, of the instance type, and of the offering
	ofPool, ofType, ofOffer capacity.Requirements
	// price returns the new price for the cloud's price; nil: the price isn't changed.
	price func(float64) float64
	// extra are resources that are added to those the cloud reports, or replace them; nil: none.
	extra capacity.Resources
}

var (
	priceForm      = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	adjustmentForm = regexp.MustCompile(`^([+-][0-9]*\.?[0-9]+|\+[0-9]*\.?[0-9]+%|-[0-9]{1,2}(\.[0-9]+)?%|-100%)$`)
)

const maxOverlayWeight = 10000

// overlayOf parses a NodeOverlay, or returns an error for each invalid field. It is at least as strict as the CRD and Karpenter's own
// runtime validation.
func overlayOf(o *karpv1alpha1.NodeOverlay) (*overlay, field.ErrorList) {
	spec := field.NewPath("spec")
	out := &overlay{name: o.Name, weight: ptr.Deref(o.Spec.Weight, 0), ofPool: capacity.Requirements{}, ofType: capacity.Requirements{}, ofOffer: capacity.Requirements{}}
	errs := validateOverlay(&o.Spec, spec)
	if len(errs) > 0 {
		return nil, errs
	}
	for i, r := range o.Spec.Requirements {
		one, err := capacity.NewRequirement(capacity.NormalLabel(r.Key), capacity.Operator(r.Operator), r.Values...)
		if err != nil {
			return nil, field.ErrorList{field.Invalid(spec.Child("requirements").Index(i), r.Values, err.Error())}
		}
		switch {
		case capacity.OfferLabel(one.Key):
			out.ofOffer = out.ofOffer.And(one)
		case one.Key != karpv1.NodePoolLabelKey && karpv1.WellKnownLabels.Has(one.Key):
			out.ofType = out.ofType.And(one)
		default:
			out.ofPool = out.ofPool.And(one)
		}
	}
	switch {
	case o.Spec.Price != nil:
		out.price = out.absolute(*o.Spec.Price)
	case o.Spec.PriceAdjustment != nil:
		out.price = adjustment(*o.Spec.PriceAdjustment)
	}
	if len(o.Spec.Capacity) > 0 {
		out.extra = capacity.ResourcesOf(o.Spec.Capacity)
	}
	return out, nil
}

// absolute returns a function that replaces the cloud's price. If the cloud has no price (+Inf), only an overlay that names its
// instance types sets one: a wider overlay can't be meant for types without a price.
func (o *overlay) absolute(text string) func(float64) float64 {
	price, _ := strconv.ParseFloat(text, 64)
	names, others := o.ofType[corev1.LabelInstanceTypeStable].Values()
	return func(cloud float64) float64 {
		if math.IsInf(cloud, 1) && (others || len(names) == 0) {
			return cloud
		}
		return price
	}
}

// adjustment changes a price by an amount ("+0.5", "-.1") or by a percentage ("-15%"), never below 0.
func adjustment(text string) func(float64) float64 {
	number, percent := strings.CutSuffix(text, "%")
	by, _ := strconv.ParseFloat(number, 64)
	return func(price float64) float64 {
		if math.IsInf(price, 1) {
			return price
		}
		if percent {
			return max(0, price*(1+by/100))
		}
		return max(0, price+by)
	}
}

func validateOverlay(o *karpv1alpha1.NodeOverlaySpec, at *field.Path) (errs field.ErrorList) {
	if n := len(o.Requirements); n > maxRequirements {
		errs = append(errs, field.TooMany(at.Child("requirements"), n, maxRequirements))
	}
	for i, r := range o.Requirements {
		at := at.Child("requirements").Index(i)
		errs = append(errs, validateTerm(&karpv1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values}, at)...)
		if r.Operator == corev1.NodeSelectorOpNotIn && len(r.Values) == 0 {
			errs = append(errs, field.Required(at.Child("values"), "the operator NotIn needs at least one value"))
		}
		if capacity.ReservationLabel(r.Key) {
			errs = append(errs, field.Forbidden(at.Child("key"), "reservations have no prices to overlay"))
		}
	}
	switch price, change := o.Price, o.PriceAdjustment; {
	case price != nil && change != nil:
		errs = append(errs, field.Forbidden(at.Child("priceAdjustment"), "it and price exclude each other"))
	case price != nil && (!priceForm.MatchString(*price) || !finite(*price)):
		errs = append(errs, field.Invalid(at.Child("price"), *price, "must be dollars an hour, like 0.25"))
	case change != nil && (!adjustmentForm.MatchString(*change) || !finite(strings.TrimSuffix(*change, "%"))):
		errs = append(errs, field.Invalid(at.Child("priceAdjustment"), *change, "must be an amount or a percentage with its sign, like -0.1 or +10%, and no less than -100%"))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Capacity)) {
		q := o.Capacity[name]
		errs = append(errs, validateExtra(name, &q, at.Child("capacity").Key(string(name)))...)
	}
	if w := o.Weight; w != nil && (*w < 1 || *w > maxOverlayWeight) {
		errs = append(errs, field.Invalid(at.Child("weight"), *w, fmt.Sprintf("must be between 1 and %d", maxOverlayWeight)))
	}
	return errs
}

func finite(text string) bool {
	v, err := strconv.ParseFloat(text, 64)
	return err == nil && !math.IsInf(v, 0)
}

// validateExtra refuses resources that the cloud knows better, and names that the API server would refuse on a Node: such a Node could
// not be created after its instance was launched.
func validateExtra(name corev1.ResourceName, q *resource.Quantity, at *field.Path) (errs field.ErrorList) {
	domain, _, qualified := strings.Cut(string(name), "/")
	switch {
	case karpv1.WellKnownResources.Has(name):
		return field.ErrorList{field.Forbidden(at, "its amount is known from EC2")}
	case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		if _, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix)); err != nil {
			errs = append(errs, field.Invalid(at, string(name), "names no page size"))
		}
	case !qualified || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasPrefix(domain, "requests."):
		return field.ErrorList{field.Invalid(at, string(name), "must be an extended resource with a domain of your own, like example.com/widget")}
	default:
		for _, msg := range validation.IsQualifiedName(string(name)) {
			errs = append(errs, field.Invalid(at, string(name), msg))
		}
	}
	if q.Sign() < 0 || q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, q.String(), "must be a whole number and not negative"))
	}
	return errs
}
