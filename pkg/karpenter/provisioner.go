package karpenter

import (
	"fmt"
	"maps"
	"slices"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// ProvisionerNameLabel is on nodes of a Provisioner, beside the labels that every node has.
const ProvisionerNameLabel = "karpenter.sh/provisioner-name"

// consolidateQuiet is how long a node of a Provisioner with consolidation must have been left alone: such Provisioners had no
// field for it, and Karpenter looked at a node for so long before it acted.
const consolidateQuiet = 15 * time.Second

// LegacyOptions are cluster-wide settings that Provisioners rely on.
type LegacyOptions struct {
	// DefaultInstanceProfile is used where none is named.
	DefaultInstanceProfile string
}

// FromProvisioner converts a Provisioner to a NodePool and an EC2NodeClass of its own, which are complete except for the metadata that
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
//	provider or providerRef, kubeletConfiguration               the class (classOf)
func FromProvisioner(p *legacy.Provisioner, template *legacy.AWSNodeTemplate, o LegacyOptions) (pool *karpv1.NodePool, class *ec2nc.EC2NodeClass, errs field.ErrorList) {
	if reason := malformed(p); reason != "" {
		return nil, nil, field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, reason)}
	}
	if errs := validateProvisioner(p); len(errs) > 0 {
		return nil, nil, errs
	}
	settings, errs := settingsOf(p, template)
	if len(errs) > 0 {
		return nil, nil, errs
	}
	name := PoolOfProvisioner(p.Name)
	class, errs = classOf(name, p, settings, o)
	if len(errs) > 0 {
		return nil, nil, errs
	}
	spec := &p.Spec
	pool = &karpv1.NodePool{
		TypeMeta: metav1.TypeMeta{APIVersion: coreVersion.String(), Kind: nodePools.Kind},
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
					NodeClassRef:  &karpv1.NodeClassReference{Group: nodeClassGroup, Kind: nodeClassKind, Name: class.Name},
					Taints:        slices.Clone(spec.Taints),
					StartupTaints: slices.Clone(spec.StartupTaints),
					Requirements:  defaultRequirements(spec),
					ExpireAfter:   karpv1.MustParseNillableDuration("Never"),
				},
			},
		},
	}
	if more := unhonoredSettings(settings); more != "" {
		pool.Annotations[objects.AnnotationUnhonored] = more
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
func defaultRequirements(spec *legacy.ProvisionerSpec) []karpv1.NodeSelectorRequirementWithMinValues {
	says := map[string]bool{}
	out := []karpv1.NodeSelectorRequirementWithMinValues{}
	for _, r := range spec.Requirements {
		says[Normalize(r.Key)] = true
		out = append(out, karpv1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: slices.Clone(r.Values)})
	}
	for key := range spec.Labels {
		says[Normalize(key)] = true
	}
	add := func(key string, op corev1.NodeSelectorOperator, values ...string) {
		if !says[key] {
			out = append(out, karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
		}
	}
	add(corev1.LabelOSStable, corev1.NodeSelectorOpIn, string(corev1.Linux))
	add(corev1.LabelArchStable, corev1.NodeSelectorOpIn, karpv1.ArchitectureAmd64)
	add(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand)
	if !says[corev1.LabelInstanceTypeStable] && !says[ec2nc.LabelInstanceFamily] && !says[ec2nc.LabelInstanceCategory] && !says[ec2nc.LabelInstanceGeneration] {
		add(ec2nc.LabelInstanceCategory, corev1.NodeSelectorOpIn, "c", "m", "r")
		add(ec2nc.LabelInstanceGeneration, corev1.NodeSelectorOpGt, "2")
	}
	return out
}

// settingsOf returns the AWS settings of a Provisioner, inline or from its AWSNodeTemplate.
func settingsOf(p *legacy.Provisioner, template *legacy.AWSNodeTemplate) (*providerSettings, field.ErrorList) {
	if p.Spec.Provider != nil {
		s := &providerSettings{AWS: &p.Spec.Provider.AWS, at: field.NewPath("spec", "provider")}
		return s, s.validate()
	}
	at := field.NewPath("spec", "providerRef", "name")
	ref := p.Spec.ProviderRef
	if template == nil {
		return nil, field.ErrorList{field.Invalid(at, ref.Name, "there is no such AWSNodeTemplate")}
	}
	s := ofTemplate(template)
	problem := malformed(template)
	switch {
	case problem != "":
	case !template.DeletionTimestamp.IsZero():
		problem = "it is being deleted"
	default:
		if errs := s.validate(); len(errs) > 0 {
			problem = joinErrors(errs)
		}
	}
	if problem != "" {
		return nil, field.ErrorList{field.Invalid(at, ref.Name, fmt.Sprintf("AWSNodeTemplate %s: %s", template.Name, problem))}
	}
	return s, nil
}
