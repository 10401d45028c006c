package consolidation

import (
	"fmt"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// zones are the pools that balance zones (Pool.ZoneBalance), and how many nodes they have in each zone when the moves priced so far are made.
//
// Provisioning buys a node that costs a little more for the sake of even zones. If consolidation replaced it by the cheapest one, the zones would become
// uneven, and the next node would cost more again: nodes would be replaced without end. Therefore what the pool tolerates is no saving (worth), and
// the new nodes of a move are spread over zones in the same way (launch).
type zones struct {
	pools  map[string]*capacity.Pool
	counts map[string]capacity.ZoneCounts
}

// zonesOf returns the pools that balance zones; nil: there are none.
func zonesOf(view *capacity.View) *zones {
	z := &zones{pools: map[string]*capacity.Pool{}, counts: capacity.ZonesOf(view.Nodes, view.Pools)}
	for _, p := range view.Pools {
		if p.Balances() {
			z.pools[p.Name] = p
		}
	}
	if len(z.pools) == 0 {
		return nil
	}
	return z
}

// pool returns the pool if it balances zones.
func (z *zones) pool(name string) *capacity.Pool {
	if z == nil {
		return nil
	}
	return z.pools[name]
}

// worth returns the price, in $/h, below which a node may be replaced. A new node of the plan has the lowest price that it may have, so it may be
// replaced by anything cheaper.
func (z *zones) worth(n *node) float64 {
	if n.c == nil {
		return n.price
	}
	if p := z.pool(n.c.Pool); p != nil {
		return p.Untolerated(n.price)
	}
	return n.price
}

// tolerance says that nodes of a pool may cost more than the cheapest; empty: they may not.
func (z *zones) tolerance(pool string) string {
	p := z.pool(pool)
	if p == nil {
		return ""
	}
	return fmt.Sprintf("nodes of its pool may cost %s more than the cheapest, so that zones are even (annotation %s)", capacity.Percent(*p.ZoneBalance), objects.AnnotationZoneBalance)
}

// leave takes the nodes that a move empties out of the counts.
func (z *zones) leave(c *cluster, nodes []int32) {
	if z == nil {
		return
	}
	for _, at := range nodes {
		if n := &c.nodes[at]; z.pools[n.c.Pool] != nil && !n.view.BeingRemoved() {
			if zone := n.view.Labels[capacity.LabelZone]; z.counts[n.c.Pool][zone] > 0 {
				z.counts[n.c.Pool][zone]--
			}
		}
	}
}

// arrive adds by, which is 1 or -1, to the counts for each new node of a move whose zone is certain.
func (z *zones) arrive(m *market, launches []launch, by int) {
	if z == nil {
		return
	}
	for _, l := range launches {
		first := &m.catalog.Candidates[l.offers[0]]
		other := func(b int) bool { return m.catalog.Candidates[b].Offer.Zone != first.Offer.Zone }
		if counts := z.counts[m.catalog.Pools[first.Pool].Name]; counts != nil && !slices.ContainsFunc(l.offers, other) {
			counts[first.Offer.Zone] += by
		}
	}
}

// zonesOf returns the zones in which there are offerings like this one, in order of price.
func (m *market) zonesOf(offer int) (out []string) {
	for _, b := range m.catalog.Cheapest(m.offers[offer]) {
		if zone := m.catalog.Candidates[b].Offer.Zone; zone != "" && !slices.Contains(out, zone) {
			out = append(out, zone)
		}
	}
	return out
}

// balanced narrows the offerings of a new node to those of one zone, as provisioning does: the one with the fewest nodes of its pool among those that
// cost little more than the cheapest. The new node costs less than ceiling in any case. If that can't be, or if there is only one zone to choose, it
// returns the offerings as they are.
func (p *plan) balanced(at int32, offers []int, ceiling float64, flexible int, r rule) []int {
	m, n := p.c.market, &p.c.nodes[at]
	c := m.catalog
	first := &c.Candidates[offers[0]]
	pool := p.c.zones.pool(c.Pools[first.Pool].Name)
	if pool == nil || first.Offer.CapacityType == capacity.CapacityTypeReserved {
		return offers
	}
	spot := first.Offer.CapacityType == capacity.CapacityTypeSpot
	if spot && n.types == 0 && !r.leaves { // the plan counted the price of one type
		ceiling = min(ceiling, first.Price*(1+*pool.ZoneBalance)*(1+lowest))
	}
	all := m.types(offers)
	in := map[string][]int{}
	var options []capacity.ZoneOption
	for _, zone := range m.zonesOf(n.offer) {
		of, short := m.alternatives(n.offer, n.pods, ceiling, flexible, r, zone)
		if short != "" || len(of) == 0 || !pool.Tolerates(c.Candidates[of[0]].Price, first.Price) {
			continue
		}
		if spot && (!capacity.SteadySpot(m.types(of), all) || m.types(of) < n.types) {
			continue
		}
		in[zone] = of
		options = append(options, capacity.ZoneOption{Zone: zone, Price: c.Candidates[of[0]].Price})
	}
	if len(options) < 2 {
		return offers
	}
	return in[p.c.zones.counts[pool.Name].Emptiest(options)]
}
