package karpenter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// StaticObjects holds pools and the objects that belong to them, read from files instead of a watch.
type StaticObjects struct {
	// NodeClass is the kind of Classes.
	NodeClass cloudprovider.NodeClassKind
	Pools     []*karpv1.NodePool
	Classes   []status.Object
	Overlays  []*karpv1alpha1.NodeOverlay
	// Claims are the existing NodeClaims.
	Claims []*capacity.Claim
	// Profiles are the scheduler profiles' settings about pools: the pools and classes in their arguments are included, and they decide which
	// pods each pool is for.
	Profiles []Profile
	// Limits hold for the nodes of all pools together; a resource not listed is not limited. ManagedBy is the name of the Dovetail whose nodes count
	// against them.
	Limits    capacity.Resources
	ManagedBy string
}

// Class returns the node class with that name, or nil.
func (h *StaticObjects) Class(name string) status.Object {
	is := func(nc status.Object) bool { return nc.GetName() == name }
	if i := slices.IndexFunc(h.Classes, is); i >= 0 {
		return h.Classes[i]
	}
	for _, p := range h.Profiles {
		if i := slices.IndexFunc(p.Classes, is); i >= 0 {
			return p.Classes[i]
		}
	}
	return nil
}

// NodePools returns the pools as objects, including those of the profiles.
func (h *StaticObjects) NodePools() []*karpv1.NodePool {
	out := slices.Clone(h.Pools)
	for _, p := range h.Profiles {
		for _, np := range p.Pools {
			if !slices.ContainsFunc(out, func(have *karpv1.NodePool) bool { return have.Name == np.Name }) {
				out = append(out, np)
			}
		}
	}
	return out
}

// Problems returns an error for each overlay that is invalid, naming the field.
func (h *StaticObjects) Problems() []error {
	var out []error
	overlaid := NewOverlays()
	for _, o := range h.Overlays {
		overlaid.Put(o.Name, o)
		if _, why := overlaid.Problem(o.Name); why != "" {
			out = append(out, fmt.Errorf("NodeOverlay %s: %s", o.Name, why))
		}
	}
	return out
}

// Total returns the limit of all pools and what nodes of this Dovetail use of it; nil: there is none.
func (h *StaticObjects) Total() *capacity.Total {
	ours := NewUsage(h.Limits)
	for _, c := range h.Claims {
		if c.Labels[objects.LabelManagedBy] == h.ManagedBy {
			ours.Set(c, false)
		}
	}
	return ours.Total()
}

// Capacity returns the pools as Store.Pools does, and a note for each overlay that is not applied because it conflicts with another.
func (h *StaticObjects) Capacity(types func(nodeClass string) ([]*capacity.InstanceType, error)) (pools []*capacity.Pool, notes []string) {
	used, overlaid, total := NewUsage(nil), NewOverlays(), h.Total()
	for _, c := range h.Claims {
		used.Set(c, false)
	}
	for _, np := range h.NodePools() {
		p := Profiles(h.Profiles).PoolFor(np, h.NodeClass.GroupKind())
		p.Used, p.Total = maps.Clone(used.Takes(np.Name)), total
		pools = append(pools, p)
	}
	pools = WithTypes(pools, h.NodeClass.Kind, h.Class, types)
	for _, o := range h.Overlays {
		overlaid.Put(o.Name, o)
	}
	overlaid.Apply(pools)
	for _, o := range slices.SortedFunc(slices.Values(h.Overlays), func(a, b *karpv1alpha1.NodeOverlay) int { return cmp.Compare(a.Name, b.Name) }) {
		if _, why := overlaid.Problem(o.Name); why != "" {
			notes = append(notes, fmt.Sprintf("NodeOverlay %s is not applied: it %s", o.Name, why))
		}
	}
	return pools, notes
}
