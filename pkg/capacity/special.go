package capacity

import (
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// setSpecial notes which bins are of special hardware (InstanceType.Special). Reserved capacity is never counted among them: it is
// paid for whether it is used or not.
func (c *catalog) setSpecial() {
	c.special = packing.NewBits(len(c.bins))
	for b := range c.bins {
		if c.typeOf(b).Special && c.bins[b].offer.CapacityType != CapacityTypeReserved {
			c.special.Set(b)
		}
	}
}

// offer sets which of the unit's bins may be bought for it: special hardware only in pools that have nothing else with room for
// one of its pods, or where all else has been tried.
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

// takeSpecial lets the unit have special hardware that it was spared, if that has room for its pods.
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

// onDemandPrice is what the node would cost if it were bought on demand, with the same content and labels otherwise, and at least
// the room that need asks for; false: it can't be.
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
