package launch

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// prices knows what claims cost. Safe for concurrent use.
type prices struct {
	claims   *claimCache
	cloud    Cloud
	spending *Spending
	clock    clock.PassiveClock
}

// Budget bounds what is bought. Zero: no bound. Whatever it says, nothing that runs is ended for it.
type Budget struct {
	DollarsPerHour    float64
	LaunchesPerMinute int
}

// limits reports whether the dollars have to be counted before a node of the pool is bought.
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

// money adds up what the claims cost: launched ones at their price, others at the dearest offering they may become.
func (p *prices) money() *money {
	out := &money{running: map[string]float64{}, inFlight: map[string]float64{}}
	classes := map[string]map[capacity.OfferKey]float64{}
	all := p.claims.allClaims()
	for _, c := range all {
		if classes[c.NodeClass] == nil {
			classes[c.NodeClass] = p.of(c.NodeClass)
		}
		of := classes[c.NodeClass]
		switch {
		case c.Launched:
			out.running[c.Pool] += priceOf(of, c)
		case !c.Deleting && c.LaunchBatch != nil:
			out.inFlight[c.Pool] += dearest(of, c.LaunchBatch.Offers)
		}
	}
	p.spending.unwritten(all, out.inFlight)
	return out
}

// unwritten adds the instances that are bought but whose claims don't show their offerings yet.
func (s *Spending) unwritten(claims map[string]*capacity.Claim, sum map[string]float64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, b := range s.machines {
		if c := claims[name]; c == nil || !c.Launched && !c.Deleting && c.LaunchBatch == nil {
			sum[b.pool] += b.price
		}
	}
}

// of returns the list prices of a node class, in dollars per hour.
func (p *prices) of(class string) map[capacity.OfferKey]float64 {
	types, _ := p.cloud.InstanceTypes(class)
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

// wasted adds the cost of an instance that has ended without having served to the metric.
func (p *prices) wasted(c *capacity.Claim) {
	// It is unknown for instances that were not watched: Karpenter's, or those of a version without the guard.
	if p.spending == nil || c == nil || !c.Launched || c.Purchase == nil || c.Served || p.spending.hasServed(c.Name) {
		return
	}
	// When clocks differ, it may have been bought in our future.
	unserved.WithLabelValues(c.Pool).Add(priceOf(p.of(c.NodeClass), c) * max(p.clock.Since(boughtAt(c)), 0).Hours())
}

// priceOf returns the price of a launched claim: that of the offering it was launched with or, if that is unknown, the dearest of its
// instance type in its zone.
func priceOf(prices map[capacity.OfferKey]float64, c *capacity.Claim) float64 {
	if p, ok := prices[capacity.OfferKey{InstanceType: c.InstanceType, Zone: c.Zone, CapacityType: c.CapacityType}]; ok {
		return p
	}
	if c.LaunchBatch == nil {
		return 0
	}
	return dearest(prices, slices.DeleteFunc(slices.Clone(c.LaunchBatch.Offers), func(k capacity.OfferKey) bool {
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

// launchWindow is the time over which launches are counted.
const launchWindow = time.Minute

// launchedLocked counts a launch if LaunchesPerMinute is set.
func (s *Spending) launchedLocked(at time.Time) {
	if s.cfg.Budget.LaunchesPerMinute > 0 && s.clock.Since(at) < launchWindow {
		s.launches = append(s.launches, at)
	}
}

// overBudgetLocked returns which budget a node would exceed, or "". urgent: the node replaces one that is about to be lost, and only a
// budget that is already exceeded keeps it from being bought.
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
			since := s.reachedLocked(pool.Name, fmt.Sprintf("at most %d instances are launched per minute (maxLaunchesPerMinute)", b.LaunchesPerMinute), a.now)
			return fmt.Sprintf("%d instances have been launched within a minute, the limit is %d (maxLaunchesPerMinute), %s: the next one is launched when the minute is over",
				len(s.launches)+a.granted, b.LaunchesPerMinute, since)
		}
	}
	if b.DollarsPerHour > 0 && a.money().total()+add > b.DollarsPerHour {
		since := s.reachedLocked(pool.Name, fmt.Sprintf("all nodes together cost at most $%.2f an hour (maxDollarsPerHour)", b.DollarsPerHour), a.now)
		return fmt.Sprintf("nodes cost up to $%.2f per hour and one more would cost up to $%.2f, the limit is $%.2f (maxDollarsPerHour), %s: nothing is launched until nodes are terminated or the limit is raised",
			a.money().total(), price, b.DollarsPerHour, since)
	}
	if most := pool.MaxDollars; most > 0 && a.money().pool(pool.Name)+add > most {
		since := s.reachedLocked(pool.Name, fmt.Sprintf("nodes of the pool cost at most $%.2f an hour (annotation %s)", most, objects.AnnotationMaxDollarsPerHour), a.now)
		return fmt.Sprintf("its nodes cost up to $%.2f per hour and one more would cost up to $%.2f, the limit is $%.2f (annotation %s), %s: nothing is launched until nodes are terminated or the limit is raised",
			a.money().pool(pool.Name), price, most, objects.AnnotationMaxDollarsPerHour, since)
	}
	if r, ok := s.budgets[pool.Name]; ok && r.at.Before(a.now) { // an earlier plan hit a budget, and nothing of this plan does
		r.free = a.now
		s.budgets[pool.Name] = r
	}
	return ""
}

// reached is a budget that has kept a node of a pool from being bought.
type reached struct {
	why string
	// since is when it first did so, and at when it last did. free is when, since then, a node could be bought again.
	since, at, free time.Time
}

// reachedFor is how long a budget counts as reached after it last kept a node from being bought: launches that still want a node are
// retried more often than that.
const reachedFor = 10 * time.Minute

// reachedLocked records that a budget keeps a pool from growing, and returns a text that says since when.
func (s *Spending) reachedLocked(pool, why string, now time.Time) string {
	r := reached{why: why, since: now, at: now}
	if before, ok := s.budgets[pool]; ok && before.why == why {
		r.since = before.since
	}
	s.budgets[pool] = r
	return "reached since " + r.since.UTC().Format(time.RFC3339)
}

// tellBudgets sets the condition and records the event on each pool whose budget has been reached, has changed, or no longer limits it.
func (s *Spending) tellBudgets() {
	now, news := s.clock.Now(), map[string]string{}
	s.mu.Lock()
	for pool, r := range s.budgets {
		if now.Sub(r.at) >= reachedFor {
			delete(s.budgets, pool)
		} else if r.free.IsZero() && s.reached[pool] != r.why {
			news[pool] = r.why
		}
	}
	for pool := range s.reached {
		if r, still := s.budgets[pool]; !still || !r.free.IsZero() {
			news[pool] = ""
		}
	}
	for pool, why := range news {
		if s.reached[pool] = why; why == "" {
			delete(s.reached, pool)
		}
	}
	s.mu.Unlock()
	for _, pool := range slices.Sorted(maps.Keys(news)) {
		why := news[pool]
		s.records.BudgetReached(pool, why)
		if why != "" {
			s.records.TellPool(pool, corev1.EventTypeWarning, "BudgetReached", "no more nodes are launched for now: "+why)
		} else {
			s.records.TellPool(pool, corev1.EventTypeNormal, "BudgetFree", "no budget keeps nodes from being bought any more")
		}
	}
}
