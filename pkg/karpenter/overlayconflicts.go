package karpenter

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// says records which overlay was the last one to set the price of each offering, and each resource, of an instance type.
type says struct {
	prices []int                       // by offering: index of the overlay in Overlays.sorted, -1 if none
	extra  map[corev1.ResourceName]int // by resource: index of the overlay
}

// conflict returns why overlay i can't be applied to a group: another overlay of the same weight sets the same price or resource.
func (v *Overlays) conflict(g *group, i int, said map[*capacity.InstanceType]*says) (err error) {
	o := v.sorted[i]
	v.each(g, i, func(t *capacity.InstanceType, h *hit) bool {
		own := said[t]
		if own == nil {
			return true
		}
		for j, is := range h.offers {
			if at := own.prices[j]; is && o.price != nil && at >= 0 && v.sorted[at].weight == o.weight {
				err = fmt.Errorf("conflicts with NodeOverlay %s, which has the same weight, over the price of %s in pool %s", v.sorted[at].name, t.Name, g.pools[0])
				return false
			}
		}
		for _, name := range slices.Sorted(maps.Keys(o.extra)) {
			if at, is := own.extra[name]; is && v.sorted[at].weight == o.weight {
				err = fmt.Errorf("conflicts with NodeOverlay %s, which has the same weight, over %s of %s in pool %s", v.sorted[at].name, name, t.Name, g.pools[0])
				return false
			}
		}
		return true
	})
	return err
}

// claim records that overlay i sets prices and resources of a group's types.
func (v *Overlays) claim(g *group, i int, said map[*capacity.InstanceType]*says) {
	o := v.sorted[i]
	v.each(g, i, func(t *capacity.InstanceType, h *hit) bool {
		own := said[t]
		if own == nil {
			own = &says{prices: make([]int, len(t.Offers)), extra: map[corev1.ResourceName]int{}}
			for j := range own.prices {
				own.prices[j] = -1
			}
			said[t] = own
		}
		for j, is := range h.offers {
			if is && o.price != nil {
				own.prices[j] = i
			}
		}
		for name := range o.extra {
			own.extra[name] = i
		}
		return true
	})
}

// each calls f for each of a group's types to which overlay i applies, until f returns false.
func (v *Overlays) each(g *group, i int, f func(*capacity.InstanceType, *hit) bool) {
	if !g.about[i] {
		return
	}
	for _, t := range g.from {
		hits := v.hits[t]
		for j := range hits {
			if hits[j].overlay == i && !f(t, &hits[j]) {
				return
			}
		}
	}
}
