package capacity

import (
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// setSpecial finds the candidates of special hardware (InstanceType.Special). Reserved capacity is never among them: it is paid for
// whether it is used or not.
func (c *catalog) setSpecial() {
	c.special = packing.NewBits(len(c.bins))
	for b := range c.bins {
		if c.typeOf(b).Special && c.bins[b].offer.CapacityType != CapacityTypeReserved {
			c.special.Set(b)
		}
	}
}

// offer sets which of the batch's candidates may be bought for it: special hardware only in pools where nothing else holds one of its
// pods, or if all else was tried.
func (r *run) offer(u *unit) {
	u.offered, u.spared = u.bins, false
	special := u.bins.Clone()
	if special.And(r.catalog.special); u.special || !special.Any() {
		return
	}
	u.offered = u.bins.Clone()
	for _, p := range r.catalog.pools {
		if len(p.labelChoices) == 0 {
			continue
		}
		var with []int
		plain := false
		for b := p.labelChoices[0].first; b < p.labelChoices[len(p.labelChoices)-1].last && !plain; b++ {
			if !u.bins.Has(b) {
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
func (r *run) takeSpecial(u *unit) bool {
	if !u.spared {
		return false
	}
	for b := range r.catalog.bins {
		if u.bins.Has(b) && !u.offered.Has(b) && packing.Fits(r.catalog.roomOf(b), u.need, 1) > 0 {
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
	x := &c.bins[n.bin]
	p := c.pools[x.pool]
	for _, ways := range c.waysOf(p, x.labelChoice, Offer{CapacityType: capacityTypeOnDemand}) {
		if ok && c.bins[ways[0]].price >= price {
			break
		}
		if !like.typ(c.bins[ways[0]].typ) {
			continue
		}
		for _, b := range ways {
			if (!ok || c.bins[b].price < price) && (!c.special.Has(b) || c.special.Has(n.bin)) && like.labels(b) && like.content(b) &&
				packing.Fits(c.roomOf(b), need, 1) > 0 {
				price, ok = c.bins[b].price, true
			}
		}
	}
	return price, ok
}
