package planner

import (
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// offer sets which of the batch's candidates may be bought for it: special hardware only in pools where nothing else holds one of its
// pods, or if all else was tried.
func (r *run) offer(u *podBatch) {
	u.offered, u.spared = u.candidates, false
	special := u.candidates.Clone()
	if special.And(r.catalog.special); u.special || !special.Any() {
		return
	}
	u.offered = u.candidates.Clone()
	for _, p := range r.catalog.pools {
		if len(p.labelChoices) == 0 {
			continue
		}
		var with []int
		plain := false
		for b := p.labelChoices[0].first; b < p.labelChoices[len(p.labelChoices)-1].last && !plain; b++ {
			if !u.candidates.Has(b) {
				continue
			}
			if special.Has(b) {
				with = append(with, b)
			} else {
				plain = packing.Fits(r.catalog.roomOf(b), u.need, 1) > 0
			}
		}
		if !plain {
			for _, b := range with {
				special.Clear(b)
			}
		}
	}
	u.offered.AndNot(special)
	u.spared = special.Any()
}

// takeSpecial allows the batch special hardware that offer left out, if that holds one of its pods.
func (r *run) takeSpecial(u *podBatch) bool {
	if !u.spared {
		return false
	}
	for b := range r.catalog.candidates {
		if u.candidates.Has(b) && !u.offered.Has(b) && packing.Fits(r.catalog.roomOf(b), u.need, 1) > 0 {
			u.special = true
			r.offer(u)
			return true
		}
	}
	return false
}

// onDemandPrice returns what the node would cost on demand, with the same pods and otherwise the same labels, and with at least the
// capacity need; false: it can't be bought so.
func (r *run) onDemandPrice(n *node, like *compatibility, need []int64) (price float64, ok bool) {
	c := r.catalog
	x := &c.candidates[n.candidate]
	p := c.pools[x.pool]
	for _, ways := range c.waysOf(p, x.labelChoice, capacity.Offer{CapacityType: capacity.CapacityTypeOnDemand}) {
		if ok && c.candidates[ways[0]].price >= price {
			break
		}
		if !like.typ(c.candidates[ways[0]].typ) {
			continue
		}
		for _, b := range ways {
			if (!ok || c.candidates[b].price < price) && (!c.special.Has(b) || c.special.Has(n.candidate)) && like.labels(b) && n.admitsPods(b) &&
				packing.Fits(c.roomOf(b), need, 1) > 0 {
				price, ok = c.candidates[b].price, true
			}
		}
	}
	return price, ok
}
