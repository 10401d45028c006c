package spending

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Cost is what nodes cost, in dollars per hour, by pool.
type Cost struct {
	Running, InFlight map[string]float64
}

func (c *Cost) pool(name string) float64 { return c.Running[name] + c.InFlight[name] }

func (c *Cost) total() (sum float64) {
	for _, all := range []map[string]float64{c.Running, c.InFlight} {
		for _, dollars := range all {
			sum += dollars
		}
	}
	return sum
}

// Cost adds up what the claims cost: launched ones at their price, others at the dearest offering they may become. claims are all NodeClaims
// by name.
func (g *Guard) Cost(claims map[string]*capacity.Claim) *Cost {
	out := &Cost{Running: map[string]float64{}, InFlight: map[string]float64{}}
	prices := map[string]func(capacity.OfferKey) (float64, bool){}
	for _, c := range claims { // all prices before the first claim: a price that one class lacks may be known from another
		if prices[c.NodeClass] == nil {
			prices[c.NodeClass] = g.prices(c.NodeClass)
		}
	}
	for _, c := range claims {
		of := prices[c.NodeClass]
		switch {
		case c.Launched:
			out.Running[c.Pool] += priceOf(of, c)
		case !c.Deleting && c.LaunchBatch != nil:
			out.InFlight[c.Pool] += dearest(of, c.LaunchBatch.Offers)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, b := range g.state.instances.byClaim { // instances that are bought but whose claims don't show their offerings yet
		if c := claims[name]; c == nil || !c.Launched && !c.Deleting && c.LaunchBatch == nil {
			out.InFlight[b.pool] += b.price
		}
	}
	return out
}

// knownPrices remembers list prices, in dollars per hour. A node class that isn't ready shows no prices, and a class no longer shows those
// of types that it has ceased to choose, while its nodes cost what they did. A price hardly depends on the class, so one that another class
// has shown will do. The memory grows no larger than the cloud's catalog. Safe for concurrent use.
type knownPrices struct {
	mu sync.Mutex
	of map[capacity.OfferKey]float64
}

// with returns a function that gives an offering's price: the one in shown or, for an offering that isn't in shown, the one that was last known.
// shown must not be changed afterwards.
func (k *knownPrices) with(shown map[capacity.OfferKey]float64) func(capacity.OfferKey) (dollars float64, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = map[capacity.OfferKey]float64{}
	}
	maps.Copy(k.of, shown)
	return func(o capacity.OfferKey) (float64, bool) {
		if dollars, ok := shown[o]; ok {
			return dollars, true
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		dollars, ok := k.of[o]
		return dollars, ok
	}
}

// prices returns the list prices of a node class, in dollars per hour: as it shows them now or, for offerings that it doesn't show, as they were
// last known.
func (g *Guard) prices(class string) func(capacity.OfferKey) (dollars float64, known bool) {
	types, _ := g.types(class)
	shown := map[capacity.OfferKey]float64{}
	for _, t := range types {
		for _, o := range t.Offers {
			if !math.IsInf(o.Price, 0) {
				shown[capacity.NodeOffer{Type: t, Offer: o}.Key()] = o.Price
			}
		}
	}
	return g.known.with(shown)
}

// priceOf returns the price of a launched claim: that of the offering it was launched with or, if that is unknown, the dearest of its
// instance type in its zone.
func priceOf(prices func(capacity.OfferKey) (float64, bool), c *capacity.Claim) float64 {
	if p, ok := prices(capacity.OfferKey{InstanceType: c.InstanceType, Zone: c.Zone, CapacityType: c.CapacityType}); ok {
		return p
	}
	if c.LaunchBatch == nil {
		return 0
	}
	return dearest(prices, slices.DeleteFunc(slices.Clone(c.LaunchBatch.Offers), func(k capacity.OfferKey) bool {
		return k.InstanceType != c.InstanceType || k.Zone != c.Zone
	}))
}

func dearest(prices func(capacity.OfferKey) (float64, bool), offers []capacity.OfferKey) (most float64) {
	for _, k := range offers {
		price, _ := prices(k)
		most = max(most, price)
	}
	return most
}

func dearestOf(offers []capacity.NodeOffer) (most float64) {
	for i := range offers {
		if p := offers[i].Offer.Price; !math.IsInf(p, 0) {
			most = max(most, p)
		}
	}
	return most
}

// Wasted adds the cost of an instance that has ended without having served to the metric.
func (g *Guard) Wasted(c *capacity.Claim) {
	// Whether it has served is unknown for instances that were not watched: Karpenter's, or those of a version without the guard.
	if g == nil || c == nil || !c.Launched || c.Purchase == nil || c.Served || g.Served(c.Name) {
		return
	}
	// When clocks differ, the time of its purchase may lie in the future.
	unserved.WithLabelValues(c.Pool).Add(priceOf(g.prices(c.NodeClass), c) * max(g.clock.Since(boughtAt(c)), 0).Hours())
}
