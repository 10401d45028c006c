package consolidation

import (
	"math"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Prices are what nodes cost, by pool and offering, in $/h.
type Prices map[string]map[capacity.OfferKey]float64

// PricesOf returns what nodes of the pools' offerings cost when nodes are compared, whether the offerings are available now or not.
func PricesOf(pools []*capacity.Pool, o *capacity.Options) Prices {
	out := Prices{}
	for _, p := range pools {
		of := map[capacity.OfferKey]float64{}
		for _, t := range p.Types {
			for i := range t.Offers {
				if list := t.Offers[i].Price; known(list) {
					key := keyOf(t.Name, t.Offers[i].Zone, t.Offers[i].CapacityType)
					of[key] = math.Max(of[key], o.PriceOf(t.Name, list))
				}
			}
		}
		out[p.Name] = of
	}
	return out
}

// Of returns the price of a node: that of the dearest offering that it may be; false: it is unknown.
func (p Prices) Of(pool, instanceType, zone, capacityType string) (float64, bool) {
	price, ok := p[pool][keyOf(instanceType, zone, capacityType)]
	return price, ok
}

func keyOf(instanceType, zone, capacityType string) capacity.OfferKey {
	return capacity.OfferKey{InstanceType: instanceType, Zone: zone, CapacityType: capacityType}
}

// NodePrices are what nodes cost that exist, in $/h, beside what is paid anyway.
type NodePrices struct {
	list     Prices
	coverage *capacity.Coverage
	options  *capacity.Options
}

// NodePricesOf returns what nodes of the pools' offerings cost when nodes are compared. It is the only place that says what a node costs which a commitment
// covers: to replace it would save nothing. coverage may be nil.
func NodePricesOf(pools []*capacity.Pool, coverage *capacity.Coverage, o *capacity.Options) *NodePrices {
	return &NodePrices{PricesOf(pools, o), coverage, o}
}

// Of returns the price of a claim's node; false: it is unknown.
func (p *NodePrices) Of(claim, pool, instanceType, zone, capacityType string) (float64, bool) {
	if p.coverage.Of(claim) != "" {
		return p.options.PriceOf(instanceType, 0), true
	}
	return p.list.Of(pool, instanceType, zone, capacityType)
}
