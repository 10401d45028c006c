package planner

import (
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
)

// offer sets which of the batch's candidates may be bought for it. Special hardware is among them only in pools where no other candidate holds
// one of its pods, or once all other candidates were tried (takeSpecial).
func (r *run) offer(u *podBatch) {
	u.offered, u.spared = u.candidates, false
	special := u.candidates.Clone()
	if special.And(r.catalog.Special); u.special || !special.Any() {
		return
	}
	u.offered = u.candidates.Clone()
	for _, p := range r.catalog.Pools {
		if len(p.LabelChoices) == 0 {
			continue
		}
		var with []int
		plain := false
		for b := p.LabelChoices[0].First; b < p.LabelChoices[len(p.LabelChoices)-1].Last && !plain; b++ {
			if !u.candidates.Has(b) {
				continue
			}
			if special.Has(b) {
				with = append(with, b)
			} else {
				plain = packing.Fits(r.catalog.RoomOf(b), u.need, 1) > 0
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
	for b := range r.catalog.Candidates {
		if u.candidates.Has(b) && !u.offered.Has(b) && packing.Fits(r.catalog.RoomOf(b), u.need, 1) > 0 {
			u.special = true
			r.offer(u)
			return true
		}
	}
	return false
}

// onDemandPrice returns what the node would cost on demand, with the same pods and otherwise the same labels, and with at least the
// capacity need, in $/h as prices are compared; false: it can't be bought on demand.
func (r *run) onDemandPrice(n *node, like *catalog.Compatibility, need []int64) (price float64, ok bool) {
	c := r.catalog
	x := &c.Candidates[n.candidate]
	p := c.Pools[x.Pool]
	for _, ways := range c.OnDemand(p, x.LabelChoice) {
		if ok && c.Candidates[ways[0]].Price >= price {
			break
		}
		if !like.InstanceType(ways[0]) {
			continue
		}
		for _, b := range ways {
			if (!ok || c.Candidates[b].Price < price) && (!c.Special.Has(b) || c.Special.Has(n.candidate)) && like.Labels(b) && n.admitsPods(b) &&
				packing.Fits(c.RoomOf(b), need, 1) > 0 {
				price, ok = c.Candidates[b].Price, true
			}
		}
	}
	return price, ok
}
