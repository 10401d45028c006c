package launch

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// annotationMaxDollars on a NodePool is how many dollars per hour its nodes may cost at most (Pool.MaxDollars).
const annotationMaxDollars = "dovetail.sh/max-dollars-per-hour"

// Budget bounds what is bought. Zero: no bound. Whatever it says, nothing that runs is ended for it.
type Budget struct {
	DollarsPerHour    float64
	LaunchesPerMinute int
}

// limits says that the dollars have to be counted before a node of the pool is bought.
func (b *Budget) limits(pool *capacity.Pool) bool { return b.DollarsPerHour > 0 || pool.MaxDollars > 0 }

// money is what nodes cost, in dollars per hour.
type money struct {
	running, inFlight map[string]float64 // by pool
}

func (m *money) pool(name string) float64 { return m.running[name] + m.inFlight[name] }

func (m *money) total() (sum float64) {
	for _, all := range []map[string]float64{m.running, m.inFlight} {
		for _, dollars := range all {
			sum += dollars
		}
	}
	return sum
}

// money adds up what the claims cost: launched ones at their price, others at the dearest they may become.
func (m *Motor) money() *money {
	out := &money{running: map[string]float64{}, inFlight: map[string]float64{}}
	prices := map[string]map[capacity.OfferKey]float64{}
	for _, c := range m.allClaims() {
		if prices[c.NodeClass] == nil {
			prices[c.NodeClass] = m.prices(c.NodeClass)
		}
		of := prices[c.NodeClass]
		switch {
		case c.Launched:
			out.running[c.Pool] += priceOf(of, c)
		case !c.Deleting && c.Wave != nil:
			out.inFlight[c.Pool] += dearest(of, c.Wave.Offers)
		}
	}
	return out
}

// prices are the list prices of a node class, in dollars per hour.
func (m *Motor) prices(class string) map[capacity.OfferKey]float64 {
	types, _ := m.cloud.InstanceTypes(class)
	out := map[capacity.OfferKey]float64{}
	for _, t := range types {
		for _, o := range t.Offers {
			if !math.IsInf(o.Price, 0) {
				out[capacity.NodeOffer{Type: t, Offer: o}.Key()] = o.Price
			}
		}
	}
	return out
}

// priceOf is what a launched claim costs: at the offer it was bought by, or at the dearest of its type in its zone where that
// can't be told.
func priceOf(prices map[capacity.OfferKey]float64, c *capacity.Claim) float64 {
	if p, ok := prices[capacity.OfferKey{InstanceType: c.InstanceType, Zone: c.Zone, CapacityType: c.CapacityType}]; ok {
		return p
	}
	if c.Wave == nil {
		return 0
	}
	return dearest(prices, slices.DeleteFunc(slices.Clone(c.Wave.Offers), func(k capacity.OfferKey) bool {
		return k.InstanceType != c.InstanceType || k.Zone != c.Zone
	}))
}

func dearest(prices map[capacity.OfferKey]float64, offers []capacity.OfferKey) (most float64) {
	for _, k := range offers {
		most = max(most, prices[k])
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

// launchWindow is over which time launches are counted.
const launchWindow = time.Minute

// launchedLocked counts a launch, if anybody asks how many there were.
func (s *Spending) launchedLocked(at time.Time) {
	if s.cfg.Budget.LaunchesPerMinute > 0 && s.clock.Since(at) < launchWindow {
		s.launches = append(s.launches, at)
	}
}

// overBudgetLocked says which budget a node would exceed. urgent: it replaces one that is about to be lost, and only a bound that
// is passed already holds it back.
func (s *Spending) overBudgetLocked(a *purchaseCheck, pool *capacity.Pool, offers []capacity.NodeOffer, urgent bool) string {
	b := &s.cfg.Budget
	if !b.limits(pool) && b.LaunchesPerMinute <= 0 {
		return ""
	}
	price := dearestOf(offers)
	add := price
	if urgent {
		add = 0
	}
	if b.LaunchesPerMinute > 0 {
		s.launches = slices.DeleteFunc(s.launches, func(at time.Time) bool { return a.now.Sub(at) >= launchWindow })
		if len(s.launches)+a.granted >= b.LaunchesPerMinute && !urgent {
			return fmt.Sprintf("%d machines have been launched within a minute, the limit is %d (maxLaunchesPerMinute)", len(s.launches)+a.granted, b.LaunchesPerMinute)
		}
	}
	if b.DollarsPerHour > 0 && a.money().total()+add > b.DollarsPerHour {
		return fmt.Sprintf("nodes cost up to $%.2f an hour already and one more would up to $%.2f, the limit is $%.2f (maxDollarsPerHour)", a.money().total(), price, b.DollarsPerHour)
	}
	if most := pool.MaxDollars; most > 0 && a.money().pool(pool.Name)+add > most {
		return fmt.Sprintf("its nodes cost up to $%.2f an hour already and one more would up to $%.2f, the limit is $%.2f (annotation %s)",
			a.money().pool(pool.Name), price, most, annotationMaxDollars)
	}
	a.granted++
	if b.limits(pool) {
		a.money().inFlight[pool.Name] += price
	}
	return ""
}
