package offline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/commitments"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/launch"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Catalog returns what a node class can run, what had to be assumed for that, and why the class can't be used.
type Catalog interface {
	InstanceTypes(nc status.Object) (types []*capacity.InstanceType, assumed []string, err error)
}

// shop implements launch.ClaimLog and launch.Cloud as far as a proposal needs them: pools, existing claims, and instance types. A
// launcher that isn't running calls no other methods of the interfaces.
type shop struct {
	intentLog
	cloud
	catalog Catalog
	objects karpenter.StaticObjects
	types   map[string]typesOf
	assumed []string
	notes   []string // notes about overlays
}

type (
	intentLog = launch.ClaimLog
	cloud     = launch.Cloud
)

type typesOf struct {
	types []*capacity.InstanceType
	err   error
}

// newShop reads pools and classes. problems name objects that are invalid.
func newShop(set *manifest.Set, s *Settings) (*shop, []error) {
	class := s.NodeClass.GroupKind()
	out := &shop{catalog: s.Catalog, types: map[string]typesOf{}, objects: karpenter.StaticObjects{
		NodeClass: s.NodeClass, Pools: own(manifest.All[*karpv1.NodePool](set), class), Classes: classesOf(set, class), Overlays: manifest.All[*karpv1alpha1.NodeOverlay](set),
		Claims: claimsOf(set, &s.NodeClass), Profiles: s.Pools, Limits: s.Limits, ManagedBy: s.ManagedBy,
	}}
	templates := map[string]*legacy.AWSNodeTemplate{}
	for _, t := range manifest.All[*legacy.AWSNodeTemplate](set) {
		templates[t.Name] = t
	}
	problems := out.objects.Problems()
	for _, p := range manifest.All[*legacy.Provisioner](set) {
		var template *legacy.AWSNodeTemplate
		if ref := p.Spec.ProviderRef; ref != nil {
			template = templates[ref.Name]
		}
		pool, class, errs := karpenter.FromProvisioner(p, template, s.Legacy)
		for _, err := range errs {
			problems = append(problems, fmt.Errorf("%s: Provisioner %s: %w", set.SourceOf(p), p.Name, err))
		}
		if len(errs) == 0 {
			out.objects.Pools, out.objects.Classes = append(out.objects.Pools, pool), append(out.objects.Classes, class)
		}
	}
	return out, problems
}

// TotalOf returns the limit of all pools that the settings have, and what nodes of the set use of it; nil: there is none.
func TotalOf(set *manifest.Set, s *Settings) *capacity.Total {
	if len(s.Limits) == 0 {
		return nil
	}
	objects := karpenter.StaticObjects{Claims: claimsOf(set, &s.NodeClass), Limits: s.Limits, ManagedBy: s.ManagedBy}
	return objects.Total()
}

// own leaves out objects of other providers.
func own[T client.Object](objects []T, class schema.GroupKind) []T {
	return slices.DeleteFunc(slices.Clone(objects), func(o T) bool { return karpenter.OfAnotherProvider(o, class) })
}

func classesOf(set *manifest.Set, class schema.GroupKind) []status.Object {
	return slices.DeleteFunc(manifest.All[status.Object](set), func(o status.Object) bool { return o.GetObjectKind().GroupVersionKind().GroupKind() != class })
}

// claimsOf returns what exists already and counts against the limits of pools: NodeClaims, and nodes of pools without one.
func claimsOf(set *manifest.Set, kind *cloudprovider.NodeClassKind) []*capacity.Claim {
	class, label := kind.GroupKind(), kind.Label()
	var out []*capacity.Claim
	claimed := map[string]bool{}
	for _, nc := range own(manifest.All[*karpv1.NodeClaim](set), class) {
		nc := nc.DeepCopy()
		objects.UseNewNames(nc.Annotations) // claims may come from a cluster that another version runs
		c := karpenter.ClaimOf(nc, class)
		claimed[c.NodeName] = true
		out = append(out, c)
	}
	for _, n := range manifest.All[*corev1.Node](set) {
		if pool := n.Labels[karpv1.NodePoolLabelKey]; pool != "" && label.Managed(n) && !claimed[n.Name] {
			out = append(out, &capacity.Claim{Name: n.Name, Pool: pool, NodeName: n.Name, Launched: true, Registered: true, Initialized: true,
				CreatedAt: n.CreationTimestamp.Time, Labels: n.Labels, InstanceType: n.Labels[corev1.LabelInstanceTypeStable],
				Zone: n.Labels[corev1.LabelTopologyZone], CapacityType: n.Labels[capacity.LabelCapacityType], Capacity: capacity.ResourcesOf(n.Status.Capacity)})
		}
	}
	return out
}

// Coverage returns what the commitments of the settings cover of a set's nodes; nil: there are none, or pools or classes are invalid.
func Coverage(set *manifest.Set, s Settings) *capacity.Coverage {
	if len(s.Plan.Commitments) == 0 {
		return nil
	}
	shop, problems := newShop(set, &s)
	if len(problems) > 0 {
		return nil
	}
	claims := map[string]*capacity.Claim{}
	for _, c := range shop.Claims() {
		claims[c.Name] = c
	}
	return commitments.New(s.Plan.Commitments).Of(shop.Pools(shop.InstanceTypes), claims)
}

func (s *shop) Problem() error { return nil }

func (s *shop) ExpectedTaints(string) []corev1.Taint { return nil }

func (s *shop) Claims() []*capacity.Claim { return s.objects.Claims }

func (s *shop) Pools(types func(string) ([]*capacity.InstanceType, error)) (pools []*capacity.Pool) {
	pools, s.notes = s.objects.Capacity(types)
	byName := map[string]*karpv1.NodePool{}
	for _, np := range s.objects.NodePools() {
		byName[np.Name] = np
	}
	for _, p := range pools { // Capacity returns copies
		if np := byName[p.Name]; p.Unready == "" && np != nil {
			p.Unready = s.notReady(np)
		}
	}
	return pools
}

// notReady returns why a pool that was read from a cluster can't be used there, as its conditions say it; empty: it can. The scheduler asks the cloud
// about the class before it writes these conditions; a plan has nothing but them. What a pool says of its class doesn't count if the class has no
// conditions: then it comes from a file, in place of the cluster's.
func (s *shop) notReady(np *karpv1.NodePool) string {
	c := falseCondition(np)
	if c == nil || c.Type == karpv1.ConditionTypeNodeClassReady && !s.judged(np) {
		return ""
	}
	return notReadyText(karpenter.NameForUser(np), c)
}

// judged reports whether the class of a pool has conditions.
func (s *shop) judged(np *karpv1.NodePool) bool {
	ref := np.Spec.Template.Spec.NodeClassRef
	if ref == nil {
		return false
	}
	class := s.objects.Class(ref.Name)
	return class != nil && len(class.GetConditions()) > 0
}

// falseCondition returns what makes an object not ready: of the conditions that its condition Ready sums up one that is False, otherwise Ready; nil:
// Ready isn't False, or it is about an older spec.
func falseCondition(o status.Object) *status.Condition {
	all := o.GetConditions()
	at := slices.IndexFunc(all, func(c status.Condition) bool {
		return c.Type == status.ConditionReady && c.IsFalse() && (c.ObservedGeneration == 0 || c.ObservedGeneration == o.GetGeneration())
	})
	if at < 0 {
		return nil
	}
	for i := range all {
		if c := &all[i]; summedUp[c.Type] && c.IsFalse() {
			return c
		}
	}
	return &all[at]
}

// summedUp are the conditions that Karpenter's condition Ready of NodePools and EC2NodeClasses sums up.
var summedUp = map[string]bool{
	karpv1.ConditionTypeValidationSucceeded: true, karpv1.ConditionTypeNodeClassReady: true,
	"SubnetsReady": true, "SecurityGroupsReady": true, "AMIsReady": true, "InstanceProfileReady": true, "CapacityReservationsReady": true,
}

func notReadyText(name string, c *status.Condition) string {
	return fmt.Sprintf("%s isn't ready: %s is False: %s", name, c.Type, cmp.Or(objects.OneLine(c.Message), c.Reason))
}

func (s *shop) InstanceTypes(nodeClass string) ([]*capacity.InstanceType, error) {
	if known, ok := s.types[nodeClass]; ok {
		return known.types, known.err
	}
	class := s.objects.Class(nodeClass)
	if c := falseCondition(class); c != nil {
		err := errors.New(notReadyText(s.objects.NodeClass.Kind+" "+nodeClass, c))
		s.types[nodeClass] = typesOf{err: err}
		return nil, err
	}
	types, assumed, err := s.catalog.InstanceTypes(class)
	for _, what := range assumed {
		s.assumed = append(s.assumed, fmt.Sprintf("%s %s: %s", s.objects.NodeClass.Kind, nodeClass, what))
	}
	slices.Sort(s.assumed)
	s.types[nodeClass] = typesOf{types, err}
	return types, err
}
