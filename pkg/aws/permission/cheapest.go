package permission

import (
	"cmp"
	"slices"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Cheapest returns a launch of the cheapest type that the pool allows, in each zone.
func Cheapest(pool *capacity.Pool, types []*capacity.InstanceType, capacityType string) capacity.LaunchBatch {
	w := capacity.LaunchBatch{
		Token: "dry-run", Pool: pool.Name, NodeClass: pool.NodeClass, CapacityType: capacityType,
		Labels: pool.Labels, Taints: pool.Taints, StartupTaints: pool.StartupTaints,
	}
	var best capacity.NodeOffer
	bought := func(t *capacity.InstanceType) (out []capacity.NodeOffer) {
		for _, o := range t.Offers {
			if o.CapacityType == capacityType && o.Available && allows(pool, t, &o) {
				out = append(out, capacity.NodeOffer{Type: t, Offer: o})
			}
		}
		return out
	}
	special := func(t *capacity.InstanceType) int {
		if t.Special {
			return 1
		}
		return 0
	}
	for _, t := range types {
		for _, o := range bought(t) {
			if best.Type == nil || cmp.Or(cmp.Compare(special(t), special(best.Type)), cmp.Compare(o.Offer.Price, best.Offer.Price)) < 0 {
				best = o
			}
		}
	}
	if best.Type == nil {
		return w
	}
	w.Offers = append(w.Offers, best.Key())
	for _, o := range bought(best.Type) {
		if !slices.ContainsFunc(w.Offers, func(k capacity.OfferKey) bool { return k.Zone == o.Offer.Zone }) {
			w.Offers = append(w.Offers, o.Key())
		}
	}
	return w
}

// allows reports whether a pool allows an offering. A requirement on a label that no instance type has is about the pool's own labels.
func allows(pool *capacity.Pool, t *capacity.InstanceType, o *capacity.Offer) bool {
	for key, r := range pool.Requirements {
		v, ok := o.Label(key)
		if !ok {
			v, ok = t.Labels[key]
		}
		if ok && !r.Has(v) || !ok && !r.AllowsAbsent() && pool.Labels[key] == "" && karpv1.WellKnownLabels.Has(key) {
			return false
		}
	}
	return true
}
