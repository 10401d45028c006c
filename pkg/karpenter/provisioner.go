package karpenter

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// consolidateQuiet is how long a node of a Provisioner with consolidation must have been left alone: such Provisioners had no
// field for it, and Karpenter looked at a node for so long before it acted.
const consolidateQuiet = 15 * time.Second

// LegacyCloud converts a cloud's settings of Provisioners.
type LegacyCloud interface {
	// Validate returns an error for each invalid setting that a Provisioner has inline, ValidateTemplate for those of a template.
	Validate(p *legacy.Provisioner) field.ErrorList
	ValidateTemplate(t *legacy.AWSNodeTemplate) field.ErrorList
	// DefaultRequirements returns the cloud's default requirements for a Provisioner. has contains the keys for which the Provisioner has a
	// requirement or a label: they get no default.
	DefaultRequirements(has map[string]bool) []corev1.NodeSelectorRequirement
	// NodeClass returns a node class of that name with the settings, which are valid, of a Provisioner or of its template. unhonored names
	// a setting that has no effect, and why that does no harm.
	NodeClass(name string, p *legacy.Provisioner, t *legacy.AWSNodeTemplate) (nc status.Object, unhonored string, errs field.ErrorList)
	// ShowSelected writes to the status of a template what its selectors have selected for a node class that was made from it.
	ShowSelected(t *legacy.AWSNodeTemplate, nc status.Object)
}

// FromProvisioner converts a Provisioner to a NodePool and a node class of its own, which are complete except for the metadata that
// identifies an object. template is the AWSNodeTemplate that spec.providerRef names, or nil. Problems are in errs, by the
// Provisioner's own fields; pool and class must not be used then.
//
// Everything about Provisioners happens here: code that uses the result can't distinguish it from today's objects, except by name.
//
//	requirements, labels, taints, startupTaints, annotations   spec.template
//	os, arch, capacity type, family                            requirements, if there is none of the key (defaultRequirements)
//	ttlSecondsUntilExpired                                      expireAfter; else Never
//	ttlSecondsAfterEmpty                                        WhenEmpty, consolidateAfter
//	consolidation.enabled                                       WhenEmptyOrUnderutilized, consolidateAfter 15s
//	neither                                                     consolidateAfter Never
//	limits.resources, weight                                    limits, weight
//	provider or providerRef, kubeletConfiguration               the class (LegacyCloud)
func FromProvisioner(p *legacy.Provisioner, template *legacy.AWSNodeTemplate, cloud LegacyCloud) (pool *karpv1.NodePool, class status.Object, errs field.ErrorList) {
	if reason := Malformed(p); reason != "" {
		return nil, nil, field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, reason)}
	}
	if errs := validateProvisioner(p, cloud); len(errs) > 0 {
		return nil, nil, errs
	}
	if errs := validateSettings(p, template, cloud); len(errs) > 0 {
		return nil, nil, errs
	}
	name := PoolOfProvisioner(p.Name)
	class, unhonored, errs := cloud.NodeClass(name, p, template)
	if len(errs) > 0 {
		return nil, nil, errs
	}
	kind := class.GetObjectKind().GroupVersionKind()
	spec := &p.Spec
	pool = &karpv1.NodePool{
		TypeMeta: metav1.TypeMeta{APIVersion: coreVersion.String(), Kind: NodePools.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      maps.Clone(p.Labels),
			Annotations: merged(p.Annotations, map[string]string{objects.AnnotationOrigin: p.Name}),
		},
		Spec: karpv1.NodePoolSpec{
			Weight:     spec.Weight,
			Disruption: disruptionOf(spec),
			Template: karpv1.NodeClaimTemplate{
				ObjectMeta: karpv1.ObjectMeta{Labels: maps.Clone(spec.Labels), Annotations: maps.Clone(spec.Annotations)},
				Spec: karpv1.NodeClaimTemplateSpec{
					NodeClassRef:  &karpv1.NodeClassReference{Group: kind.Group, Kind: kind.Kind, Name: name},
					Taints:        slices.Clone(spec.Taints),
					StartupTaints: slices.Clone(spec.StartupTaints),
					Requirements:  defaultRequirements(spec, cloud),
					ExpireAfter:   karpv1.MustParseNillableDuration("Never"),
				},
			},
		},
	}
	if unhonored != "" {
		pool.Annotations[objects.AnnotationUnhonored] = unhonored
	}
	if spec.Limits != nil && len(spec.Limits.Resources) > 0 {
		pool.Spec.Limits = karpv1.Limits(spec.Limits.Resources.DeepCopy())
	}
	if ttl := spec.TTLSecondsUntilExpired; ttl != nil {
		pool.Spec.Template.Spec.ExpireAfter = seconds(*ttl)
	}
	return pool, class, nil
}

// disruptionOf returns when nodes may be removed before they expire. Provisioners had no budgets: all empty nodes were removed at
// once, underutilized ones a few at a time, and none was replaced because of drift.
func disruptionOf(spec *legacy.ProvisionerSpec) karpv1.Disruption {
	d := karpv1.Disruption{
		ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
		ConsolidateAfter:    karpv1.MustParseNillableDuration("Never"),
		Budgets: []karpv1.Budget{
			{Nodes: "100%", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty}},
			{Nodes: "10%", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonUnderutilized}},
			{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}},
		},
	}
	switch {
	case consolidates(spec):
		d.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
		d.ConsolidateAfter = karpv1.MustParseNillableDuration(consolidateQuiet.String())
	case spec.TTLSecondsAfterEmpty != nil:
		d.ConsolidateAfter = seconds(*spec.TTLSecondsAfterEmpty)
	}
	return d
}

func consolidates(spec *legacy.ProvisionerSpec) bool {
	return spec.Consolidation != nil && ptr.Deref(spec.Consolidation.Enabled, false)
}

func seconds(n int64) karpv1.NillableDuration {
	return karpv1.MustParseNillableDuration((time.Duration(n) * time.Second).String())
}

// defaultRequirements returns the Provisioner's requirements and, for missing keys, those that Karpenter's webhook used to write into
// it.
func defaultRequirements(spec *legacy.ProvisionerSpec, cloud LegacyCloud) []karpv1.NodeSelectorRequirementWithMinValues {
	says := map[string]bool{}
	out := []karpv1.NodeSelectorRequirementWithMinValues{}
	for _, r := range spec.Requirements {
		says[capacity.NormalLabel(r.Key)] = true
		out = append(out, karpv1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: slices.Clone(r.Values)})
	}
	for key := range spec.Labels {
		says[capacity.NormalLabel(key)] = true
	}
	add := func(key string, op corev1.NodeSelectorOperator, values ...string) {
		if !says[key] {
			out = append(out, karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
		}
	}
	add(corev1.LabelOSStable, corev1.NodeSelectorOpIn, string(corev1.Linux))
	add(corev1.LabelArchStable, corev1.NodeSelectorOpIn, karpv1.ArchitectureAmd64)
	add(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand)
	for _, r := range cloud.DefaultRequirements(says) {
		add(r.Key, r.Operator, r.Values...)
	}
	return out
}

// validateSettings returns what is wrong with the cloud's settings of a Provisioner, inline or in its AWSNodeTemplate.
func validateSettings(p *legacy.Provisioner, template *legacy.AWSNodeTemplate, cloud LegacyCloud) field.ErrorList {
	if p.Spec.Provider != nil {
		return cloud.Validate(p)
	}
	at := field.NewPath("spec", "providerRef", "name")
	ref := p.Spec.ProviderRef
	if template == nil {
		return field.ErrorList{field.Invalid(at, ref.Name, "there is no such AWSNodeTemplate")}
	}
	problem := Malformed(template)
	switch {
	case problem != "":
	case !template.DeletionTimestamp.IsZero():
		problem = "it is being deleted"
	default:
		if errs := cloud.ValidateTemplate(template); len(errs) > 0 {
			problem = JoinErrors(errs)
		}
	}
	if problem != "" {
		return field.ErrorList{field.Invalid(at, ref.Name, fmt.Sprintf("AWSNodeTemplate %s: %s", template.Name, problem))}
	}
	return nil
}
