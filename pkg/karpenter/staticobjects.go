package karpenter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// StaticObjects are pools and what belongs to them, from files instead of a watch.
type StaticObjects struct {
	Pools    []*karpv1.NodePool
	Classes  []*ec2nc.EC2NodeClass
	Overlays []*karpv1alpha1.NodeOverlay
	// Claims are what there is already.
	Claims []*capacity.Claim
	// Profiles as in Store.SetProfiles: their pools and classes count, too, and pools are for the pods they are for.
	Profiles []Profile
}

// Class is the EC2NodeClass of that name, or nil.
func (h *StaticObjects) Class(name string) *ec2nc.EC2NodeClass {
	is := func(nc *ec2nc.EC2NodeClass) bool { return nc.Name == name }
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

// NodePools are the pools as objects, those of the profiles included.
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

// Problems are the overlays that can't be read, each with the reason, by its fields.
func (h *StaticObjects) Problems() []error {
	var out []error
	overlaid := newOverlays()
	for _, o := range h.Overlays {
		overlaid.put(o.Name, o)
		if _, why := overlaid.problem(o.Name); why != "" {
			out = append(out, fmt.Errorf("NodeOverlay %s: %s", o.Name, why))
		}
	}
	return out
}

// Capacity gives the pools as Store.Pools does, and says which overlays are not applied, because others contradict them.
func (h *StaticObjects) Capacity(types func(nodeClass string) ([]*capacity.InstanceType, string)) (pools []*capacity.Pool, notes []string) {
	used, made, overlaid := newUsage(), newSources(), newOverlays()
	made.profiles = h.Profiles
	for _, c := range h.Claims {
		used.set(c, false)
	}
	for _, np := range h.NodePools() {
		p := made.poolFor(np)
		p.Used = maps.Clone(used.takes(np.Name))
		pools = append(pools, p)
	}
	pools = withTypes(pools, h.Class, types)
	for _, o := range h.Overlays {
		overlaid.put(o.Name, o)
	}
	overlaid.apply(pools)
	for _, o := range slices.SortedFunc(slices.Values(h.Overlays), func(a, b *karpv1alpha1.NodeOverlay) int { return cmp.Compare(a.Name, b.Name) }) {
		if _, why := overlaid.problem(o.Name); why != "" {
			notes = append(notes, fmt.Sprintf("NodeOverlay %s is not applied: it %s", o.Name, why))
		}
	}
	return pools, notes
}
