package karpenter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// maxRequirements is the CRD's limit on the length of spec.requirements.
const maxRequirements = 100

// ClaimOf converts a NodeClaim to a capacity.Claim. It never fails: what can't be read is named in Unreadable. The result shares no
// memory with nc. class is the kind of node class that it may refer to.
func ClaimOf(nc *karpv1.NodeClaim, class schema.GroupKind) *capacity.Claim {
	return CachedClaimOf(nc, class, &Batches{})
}

// CachedClaimOf is ClaimOf with a cache of launch batches that were decoded before.
func CachedClaimOf(nc *karpv1.NodeClaim, class schema.GroupKind, seen *Batches) *capacity.Claim {
	c := &capacity.Claim{
		Name:          nc.Name,
		UID:           string(nc.UID),
		Pool:          nc.Labels[karpv1.NodePoolLabelKey],
		CreatedAt:     nc.CreationTimestamp.Time,
		Labels:        maps.Clone(nc.Labels),
		Annotations:   nodeAnnotations(nc.Annotations),
		Taints:        slices.Clone(nc.Spec.Taints),
		StartupTaints: slices.Clone(nc.Spec.StartupTaints),
		Requests:      capacity.ResourcesOf(nc.Spec.Resources.Requests),
		ProviderID:    nc.Status.ProviderID,
		NodeName:      nc.Status.NodeName,
		ImageID:       nc.Status.ImageID,
		InstanceType:  nc.Labels[corev1.LabelInstanceTypeStable],
		Zone:          nc.Labels[corev1.LabelTopologyZone],
		CapacityType:  nc.Labels[karpv1.CapacityTypeLabelKey],
		Capacity:      capacity.ResourcesOf(nc.Status.Capacity),
		Allocatable:   capacity.ResourcesOf(nc.Status.Allocatable),
		Launched:      ConditionTrue(nc, karpv1.ConditionTypeLaunched),
		Registered:    ConditionTrue(nc, karpv1.ConditionTypeRegistered),
		Initialized:   ConditionTrue(nc, karpv1.ConditionTypeInitialized),
		Served:        ConditionTrue(nc, objects.ConditionServed),
		Drifted:       ConditionTrue(nc, karpv1.ConditionTypeDrifted),
		Deleting:      !nc.DeletionTimestamp.IsZero(),
	}
	if c.Served {
		c.ServedAt = conditionOf(nc, objects.ConditionServed).LastTransitionTime.Time
	}
	if c.Initialized {
		c.InitializedAt = conditionOf(nc, karpv1.ConditionTypeInitialized).LastTransitionTime.Time
	}
	if ref := nc.Spec.NodeClassRef; ref != nil {
		c.NodeClass = ref.Name
	}
	c.ExpireAfter = ptr.Deref(nc.Spec.ExpireAfter.Duration, 0)
	c.DoNotDisrupt = nc.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true"
	var unreadable []string
	if m := Malformed(nc); m != "" {
		unreadable = append(unreadable, m)
	}
	for key, read := range map[string]func(value string) error{
		objects.AnnotationLaunchBatch: func(value string) (err error) { c.LaunchBatch, err = seen.Decode(value); return err },
		objects.AnnotationPlannedPods: func(value string) error { return decodeAnnotation(objects.AnnotationPlannedPods, value, &c.Slots) },
		objects.AnnotationLargestCapacity: func(value string) error {
			return decodeAnnotation(objects.AnnotationLargestCapacity, value, &c.Largest)
		},
		objects.AnnotationPurchase: func(value string) error {
			c.Purchase = &guard.Purchase{}
			return decodeAnnotation(objects.AnnotationPurchase, value, c.Purchase)
		},
	} {
		if value, ok := nc.Annotations[key]; ok {
			if err := read(value); err != nil {
				unreadable = append(unreadable, err.Error())
			}
		}
	}
	slices.Sort(unreadable)
	if c.Unreadable = strings.Join(unreadable, "; "); c.Unreadable == "" {
		c.Order = orderOf(nc, c.LaunchBatch, class)
	}
	return c
}

// ConditionTrue reports whether a NodeClaim has a condition with status True.
func ConditionTrue(nc *karpv1.NodeClaim, condition string) bool {
	c := conditionOf(nc, condition)
	return c != nil && c.IsTrue()
}

func conditionOf(nc *karpv1.NodeClaim, condition string) *status.Condition {
	for i := range nc.Status.Conditions {
		if nc.Status.Conditions[i].Type == condition {
			return &nc.Status.Conditions[i]
		}
	}
	return nil
}

// nodeAnnotations returns the annotations of a claim that are meant for its Node. It leaves out the launch record, which is long and
// of no use there, and what kubectl records about the claim itself.
func nodeAnnotations(all map[string]string) map[string]string {
	out := maps.Clone(all)
	for _, key := range []string{objects.AnnotationLaunchBatch, objects.AnnotationPlannedPods, objects.AnnotationLargestCapacity, objects.AnnotationPurchase, objects.AnnotationMalformed, lastApplied} {
		delete(out, key)
	}
	return out
}

// NodeClaimOf returns the object that records the intent to launch c for the pool np, complete as Create sends it.
func NodeClaimOf(c *capacity.Claim, np *karpv1.NodePool, seen *Batches) (*karpv1.NodeClaim, error) {
	template := &np.Spec.Template
	ref := template.Spec.NodeClassRef
	if ref == nil {
		return nil, fmt.Errorf("NodePool %s: spec.template.spec.nodeClassRef is missing", np.Name)
	}
	nc := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:            c.Name,
			Finalizers:      []string{karpv1.TerminationFinalizer},
			Labels:          merged(c.Labels, customLabels(template.Spec.Requirements, c.Labels), template.Labels, poolLabels(np)),
			Annotations:     merged(nodeAnnotations(template.Annotations), nodeAnnotations(c.Annotations)),
			OwnerReferences: Owners(np),
		},
		Spec: karpv1.NodeClaimSpec{
			Taints:                 either(c.Taints, template.Spec.Taints),
			StartupTaints:          either(c.StartupTaints, template.Spec.StartupTaints),
			Resources:              karpv1.ResourceRequirements{Requests: c.Requests.List()},
			NodeClassRef:           ref.DeepCopy(),
			ExpireAfter:            *template.Spec.ExpireAfter.DeepCopy(),
			TerminationGracePeriod: template.Spec.TerminationGracePeriod,
		},
	}
	PoolStamp(np).Put(nc.Annotations)
	var offers []capacity.OfferKey
	if c.LaunchBatch != nil {
		offers = c.LaunchBatch.Offers
	}
	var relaxed bool
	labels := merged(template.Labels, poolLabels(np))
	delete(labels, legacy.ProvisionerNameLabel) // the v1 definition allows no requirement on it
	nc.Spec.Requirements, relaxed = claimRequirements(template.Spec.Requirements, labels, nc.Labels, offers)
	if relaxed {
		nc.Annotations[karpv1.NodeClaimMinValuesRelaxedAnnotationKey] = "true"
	}
	if c.Annotations[karpv1.NodeClaimMinValuesRelaxedAnnotationKey] == "true" {
		for i := range nc.Spec.Requirements {
			// minValues is dropped from all keys: the offers have too few values for one key, and the plan doesn't say for which.
			nc.Spec.Requirements[i].MinValues = nil
		}
	}
	if err := record(nc.Annotations, c, seen); err != nil {
		return nil, err
	}
	return nc, nil
}

// record writes the launch batch, the planned pods, the largest possible resources and the purchase of c into annotations.
func record(annotations map[string]string, c *capacity.Claim, seen *Batches) (err error) {
	if c.LaunchBatch != nil {
		if annotations[objects.AnnotationLaunchBatch], err = seen.Encode(c.LaunchBatch); err != nil {
			return err
		}
	}
	if len(c.Slots) > 0 {
		if annotations[objects.AnnotationPlannedPods], err = EncodeAnnotation(objects.AnnotationPlannedPods, c.Slots); err != nil {
			return err
		}
	}
	if len(c.Largest) > 0 {
		if annotations[objects.AnnotationLargestCapacity], err = EncodeAnnotation(objects.AnnotationLargestCapacity, c.Largest); err != nil {
			return err
		}
	}
	if c.Purchase != nil {
		annotations[objects.AnnotationPurchase], err = EncodeAnnotation(objects.AnnotationPurchase, c.Purchase)
	}
	return err
}

// claimRequirements returns the requirements of the pool's template and labels, narrowed to the decision: instance types, zones,
// capacity types, reservations and tenancies of the offers in their order, cheapest first, and the values chosen for the user's own
// keys. minValues are kept. relaxed reports that the offers don't have as many values as minValues asks for: the API refuses such a
// requirement, so minValues is dropped there.
func claimRequirements(template []karpv1.NodeSelectorRequirementWithMinValues, labels, chosen map[string]string, offers []capacity.OfferKey) (out []karpv1.NodeSelectorRequirementWithMinValues, relaxed bool) {
	narrowed := map[string][]string{}
	for i := range template {
		if value, ok := chosen[template[i].Key]; ok && !wellKnown(template[i].Key) {
			narrowed[template[i].Key] = []string{value}
		}
	}
	tenancy := slices.ContainsFunc(offers, func(o capacity.OfferKey) bool { return o.Tenancy != "" })
	for _, o := range offers {
		if tenancy {
			o.Tenancy = cmp.Or(o.Tenancy, "default")
		}
		for key, value := range map[string]string{
			corev1.LabelInstanceTypeStable: o.InstanceType,
			corev1.LabelTopologyZone:       o.Zone,
			karpv1.CapacityTypeLabelKey:    o.CapacityType,
			capacity.LabelReservationID:    o.ReservationID,
			capacity.LabelTenancy:          o.Tenancy,
		} {
			if value != "" && !slices.Contains(narrowed[key], value) {
				narrowed[key] = append(narrowed[key], value)
			}
		}
	}
	minValues := map[string]int{}
	for _, r := range template {
		r := *r.DeepCopy()
		r.Key = capacity.NormalLabel(r.Key)
		if narrowed[r.Key] == nil {
			out = append(out, r)
		} else {
			minValues[r.Key] = max(minValues[r.Key], ptr.Deref(r.MinValues, 0))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(narrowed)) {
		r := karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: narrowed[key]}
		switch n := minValues[key]; {
		case n > len(narrowed[key]):
			relaxed = true
		case n > 0:
			r.MinValues = &n
		}
		out = append(out, r)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if narrowed[capacity.NormalLabel(key)] == nil && len(out) < maxRequirements {
			out = append(out, karpv1.NodeSelectorRequirementWithMinValues{Key: capacity.NormalLabel(key), Operator: corev1.NodeSelectorOpIn, Values: []string{labels[key]}})
		}
	}
	if out == nil {
		out = []karpv1.NodeSelectorRequirementWithMinValues{} // the field is required, and null is not a list
	}
	return out, relaxed
}

// customLabels returns labels for the user's own keys in the pool's requirements to which the plan has given no value: the first value
// of an In requirement. Well-known labels are left out, since the cloud determines them.
func customLabels(requirements []karpv1.NodeSelectorRequirementWithMinValues, chosen map[string]string) map[string]string {
	out := map[string]string{}
	for i := range requirements {
		r := &requirements[i]
		if _, ok := chosen[r.Key]; ok || r.Operator != corev1.NodeSelectorOpIn || len(r.Values) == 0 || wellKnown(r.Key) {
			continue
		}
		if _, ok := out[r.Key]; !ok {
			out[r.Key] = r.Values[0]
		}
	}
	return out
}

func wellKnown(key string) bool { return karpv1.WellKnownLabels.Has(capacity.NormalLabel(key)) }

// OwnedByPool reports whether an owner reference names a NodePool or a Provisioner. Then a provisioner (ours or Karpenter's) created the claim.
func OwnedByPool(o metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return group == coreVersion.Group && (o.Kind == NodePools.Kind || o.Kind == Provisioners.Kind)
}

// Owners returns the owner references of a pool's claims; they block the owner's deletion. A pool from a profile's arguments has no
// object to refer to.
func Owners(np *karpv1.NodePool) []metav1.OwnerReference {
	owner := metav1.OwnerReference{APIVersion: coreVersion.String(), Kind: NodePools.Kind, Name: np.Name, UID: np.UID, BlockOwnerDeletion: ptr.To(true)}
	switch {
	case strings.HasPrefix(np.Name, ProvisionerPrefix):
		owner.APIVersion, owner.Kind, owner.Name = provisionerVersion.String(), Provisioners.Kind, np.Annotations[objects.AnnotationOrigin]
	case Derived(np.Name):
		return nil
	}
	return []metav1.OwnerReference{owner}
}

// poolLabels returns the labels that tie a claim to its pool and node class.
func poolLabels(np *karpv1.NodePool) map[string]string {
	out := map[string]string{karpv1.NodePoolLabelKey: np.Name}
	if strings.HasPrefix(np.Name, ProvisionerPrefix) {
		out[legacy.ProvisionerNameLabel] = np.Annotations[objects.AnnotationOrigin]
	}
	if ref := np.Spec.Template.Spec.NodeClassRef; ref != nil {
		out[karpv1.NodeClassLabelKey(ref.GroupKind())] = ref.Name
	}
	return out
}

// merged returns a new map with the entries of all maps; later maps win.
func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

func either[T any](a, b []T) []T {
	if a == nil {
		a = b
	}
	return slices.Clone(a)
}
