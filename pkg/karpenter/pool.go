package karpenter

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// PoolOf converts a NodePool to a capacity.Pool, without Used and Types. Unready names all problems in the object itself that prevent
// its use.
func PoolOf(np *karpv1.NodePool, class schema.GroupKind) *capacity.Pool {
	template := &np.Spec.Template
	p := &capacity.Pool{
		Name:          np.Name,
		Weight:        ptr.Deref(np.Spec.Weight, 0),
		Labels:        merged(template.Labels, poolLabels(np)),
		Taints:        slices.Clone(template.Spec.Taints),
		StartupTaints: slices.Clone(template.Spec.StartupTaints),
		Replicas:      np.Spec.Replicas,
	}
	if ref := template.Spec.NodeClassRef; ref != nil {
		p.NodeClass = ref.Name
	}
	if len(np.Spec.Limits) > 0 {
		p.Limits = capacity.ResourcesOf(corev1.ResourceList(np.Spec.Limits))
	}
	err := PoolProblem(np, class)
	if err != nil {
		p.Unready = err.Error()
		return p
	}
	p.MaxDollars, _ = maxDollars(np) // validation has accepted both
	p.ZoneBalance, _ = ZoneBalance(np)
	if p.Requirements, err = poolRequirements(template.Spec.Requirements, p.Labels); err != nil {
		// Validation has accepted them, so this is a requirement that capacity's operators can't express.
		p.Unready = fmt.Sprintf("%s: spec.template.spec.requirements: %v", NameForUser(np), err)
		return p
	}
	for key, value := range customLabels(template.Spec.Requirements, p.Labels) {
		if only, ok := p.Requirements[capacity.NormalLabel(key)].Single(); ok && only == value {
			p.Labels[key] = value
		}
	}
	return p
}

// PoolProblem returns why the pool can't be used, as far as the object itself tells; nil when it can.
func PoolProblem(np *karpv1.NodePool, class schema.GroupKind) error {
	switch {
	case Malformed(np) != "":
		return fmt.Errorf("%s: %s", NameForUser(np), Malformed(np))
	case !np.DeletionTimestamp.IsZero():
		return fmt.Errorf("%s is being deleted", NameForUser(np))
	}
	if errs := ValidatePool(np, class); len(errs) > 0 {
		return fmt.Errorf("%s: %s", NameForUser(np), JoinErrors(errs))
	}
	return nil
}

// poolRequirements returns the template's requirements and labels by normalized key. Several entries of one key are intersected, and
// the highest minValues wins. Nothing else is added: Karpenter has no default requirements since v1.
func poolRequirements(template []karpv1.NodeSelectorRequirementWithMinValues, labels map[string]string) (capacity.Requirements, error) {
	out := capacity.Requirements{}
	for i := range template {
		r, err := requirement(&template[i])
		if err != nil {
			return nil, err
		}
		out = out.And(r)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = out.And(capacity.ValueIn(capacity.NormalLabel(key), labels[key]))
	}
	return out, nil
}

func requirement(from *karpv1.NodeSelectorRequirementWithMinValues) (capacity.Requirement, error) {
	r, err := capacity.NewRequirement(capacity.NormalLabel(from.Key), capacity.Operator(from.Operator), from.Values...)
	if err != nil {
		return r, fmt.Errorf("key %s: %w", from.Key, err)
	}
	r.MinValues = ptr.Deref(from.MinValues, 0)
	return r, nil
}

// WithTypes returns copies of pools with the instance types that their classes can run, in the order in which pools are tried.
func WithTypes(pools []*capacity.Pool, kind string, class func(name string) status.Object, types func(nodeClass string) ([]*capacity.InstanceType, error)) []*capacity.Pool {
	out := make([]*capacity.Pool, 0, len(pools))
	for _, one := range pools {
		p := *one
		if p.Unready == "" {
			err := NodeClassProblem(p.Name, kind, p.NodeClass, class(p.NodeClass))
			if err == nil {
				p.Types, err = types(p.NodeClass)
			}
			if err != nil {
				p.Unready = err.Error()
			}
		}
		withNodeSettings(&p)
		out = append(out, &p)
	}
	slices.SortFunc(out, byWeight)
	return out
}

// withNodeSettings adds to a pool what its class's user data sets on nodes. A label that the pool sets or requires keeps the pool's value, because
// the kubelet is given that one last. A NoExecute taint that the pool doesn't declare counts as a startup taint: with this effect
// agents keep pods off a new node until it is prepared, and then remove the taint. A taint with another effect counts as permanent.
func withNodeSettings(p *capacity.Pool) {
	if len(p.Types) == 0 || p.Types[0].Node == nil {
		return
	}
	own := p.Types[0].Node
	p.Unread = own.Unread
	for key, value := range own.Labels {
		if _, said := p.Requirements[key]; said {
			continue
		}
		if _, said := p.Labels[key]; !said {
			p.Labels = merged(p.Labels, map[string]string{key: value})
			p.Requirements = p.Requirements.And(capacity.ValueIn(key, value))
		}
	}
	for i := range own.Taints {
		t := &own.Taints[i]
		same := func(o corev1.Taint) bool { return o.MatchTaint(t) }
		switch {
		case slices.ContainsFunc(p.Taints, same) || slices.ContainsFunc(p.StartupTaints, same):
		case t.Effect == corev1.TaintEffectNoExecute:
			p.StartupTaints = append(slices.Clip(p.StartupTaints), *t)
		default:
			p.Taints = append(slices.Clip(p.Taints), *t)
		}
	}
}

// byWeight orders pools as they are tried: by weight, highest first, then by name.
func byWeight(a, b *capacity.Pool) int {
	if a.Weight != b.Weight {
		return int(b.Weight) - int(a.Weight)
	}
	return strings.Compare(a.Name, b.Name)
}

// maxDollars returns how much the pool's nodes may cost in dollars per hour; 0 means any amount.
func maxDollars(np *karpv1.NodePool) (float64, error) {
	text, said := np.Annotations[objects.AnnotationMaxDollarsPerHour]
	if !said {
		return 0, nil
	}
	most, err := strconv.ParseFloat(text, 64)
	if err != nil || !(most > 0) || math.IsInf(most, 0) {
		return 0, errors.New("must be an amount of dollars above zero, like \"12.50\"")
	}
	return most, nil
}

// percentage is how an amount of per cent is written.
var percentage = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})(\.[0-9]{1,4})?%$`)

// ZoneBalance returns by how much a new node of the pool may cost more than its cheapest offering, so that nodes are spread evenly over zones, as a
// fraction (0.1 for 10 %); nil means that zones aren't balanced.
func ZoneBalance(np *karpv1.NodePool) (*float64, error) {
	text, said := np.Annotations[objects.AnnotationZoneBalance]
	if !said {
		return nil, nil
	}
	if percentage.MatchString(text) {
		if percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64); err == nil && percent <= 100 {
			return ptr.To(percent / 100), nil
		}
	}
	return nil, errors.New("must be a percentage from \"0%\" to \"100%\", like \"10%\"")
}
