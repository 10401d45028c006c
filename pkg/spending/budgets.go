package spending

import (
	"fmt"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Budget bounds what is bought: what all nodes together may cost, and how many instances may be launched per minute. Zero: no bound. Nothing that
// runs is ended because of it.
type Budget struct {
	DollarsPerHour    float64
	LaunchesPerMinute int
}

// limits reports whether the dollars have to be counted before a node of the pool is bought.
func (b *Budget) limits(pool *capacity.Pool) bool { return b.DollarsPerHour > 0 || pool.MaxDollars > 0 }

// launchWindow is the time over which launches are counted.
const launchWindow = time.Minute

// budgets counts what is launched against the limits, and remembers which of them are reached. The guard's lock protects it.
type budgets struct {
	limit    Budget
	launches []time.Time
	// hit holds the budgets that are reached, by the pool they keep from growing; told is the budget that was last reported for such a pool.
	hit  map[string]reached
	told map[string]string
}

// launched counts a launch if LaunchesPerMinute is set.
func (b *budgets) launched(at, now time.Time) {
	if b.limit.LaunchesPerMinute > 0 && now.Sub(at) < launchWindow {
		b.launches = append(b.launches, at)
	}
}

// exceeded returns which budget a node would exceed, or "". urgent: the node replaces one that is about to be lost. Then launches are not
// limited, and only a limit on dollars that is exceeded already keeps it from being bought.
func (b *budgets) exceeded(a *Check, pool *capacity.Pool, offers []capacity.NodeOffer, urgent bool) string {
	limit := &b.limit
	if !limit.limits(pool) && limit.LaunchesPerMinute <= 0 {
		return ""
	}
	price := dearestOf(offers)
	add := price
	if a.Moves {
		return b.exceededByMove(a, pool, price)
	}
	if urgent {
		add = 0
	}
	if limit.LaunchesPerMinute > 0 {
		b.forget(a.now)
		if len(b.launches)+a.granted >= limit.LaunchesPerMinute && !urgent {
			since := b.reach(pool.Name, fmt.Sprintf("at most %d instances are launched per minute (maxLaunchesPerMinute)", limit.LaunchesPerMinute), a.now)
			return fmt.Sprintf("%d instances have been launched within a minute, the limit is %d (maxLaunchesPerMinute), %s: the next one is launched when the minute is over",
				len(b.launches)+a.granted, limit.LaunchesPerMinute, since)
		}
	}
	if limit.DollarsPerHour > 0 && a.spent().total()+add > limit.DollarsPerHour {
		since := b.reach(pool.Name, fmt.Sprintf("all nodes together cost at most $%.2f an hour (maxDollarsPerHour)", limit.DollarsPerHour), a.now)
		return fmt.Sprintf("nodes cost up to $%.2f per hour and one more would cost up to $%.2f, the limit is $%.2f (maxDollarsPerHour), %s: nothing is launched until nodes are terminated or the limit is raised",
			a.spent().total(), price, limit.DollarsPerHour, since)
	}
	if most := pool.MaxDollars; most > 0 && a.spent().pool(pool.Name)+add > most {
		since := b.reach(pool.Name, fmt.Sprintf("nodes of the pool cost at most $%.2f an hour (annotation %s)", most, objects.AnnotationMaxDollarsPerHour), a.now)
		return fmt.Sprintf("its nodes cost up to $%.2f per hour and one more would cost up to $%.2f, the limit is $%.2f (annotation %s), %s: nothing is launched until nodes are terminated or the limit is raised",
			a.spent().pool(pool.Name), price, most, objects.AnnotationMaxDollarsPerHour, since)
	}
	if r, ok := b.hit[pool.Name]; ok && r.at.Before(a.now) { // an earlier plan hit a budget, and nothing of this plan does
		r.free = a.now
		b.hit[pool.Name] = r
	}
	return ""
}

// exceededByMove is exceeded for a node of a move. No pod waits for such a node, so no budget counts as reached.
func (b *budgets) exceededByMove(a *Check, pool *capacity.Pool, price float64) string {
	limit := &b.limit
	b.forget(a.now)
	switch {
	case limit.LaunchesPerMinute > 0 && len(b.launches)+a.granted >= limit.LaunchesPerMinute/2:
		return fmt.Sprintf("half of the %d launches per minute (maxLaunchesPerMinute) are left to pods that wait", limit.LaunchesPerMinute)
	case limit.DollarsPerHour > 0 && a.spent().total()+price > limit.DollarsPerHour:
		return fmt.Sprintf("while old and new nodes run, nodes would cost more than $%.2f an hour (maxDollarsPerHour)", limit.DollarsPerHour)
	case pool.MaxDollars > 0 && a.spent().pool(pool.Name)+price > pool.MaxDollars:
		return fmt.Sprintf("while old and new nodes run, nodes would cost more than $%.2f an hour (annotation %s)", pool.MaxDollars, objects.AnnotationMaxDollarsPerHour)
	}
	return ""
}

// forget drops launches that are longer ago than a minute.
func (b *budgets) forget(now time.Time) {
	b.launches = slices.DeleteFunc(b.launches, func(at time.Time) bool { return now.Sub(at) >= launchWindow })
}

// reached is a budget that has kept a node of a pool from being bought.
type reached struct {
	why string
	// since is when it first did so, and at when it last did. free is when a node of the pool could be bought again after that; zero: not yet.
	since, at, free time.Time
}

// reachedFor is how long a budget counts as reached after it last kept a node from being bought: launches that still want a node are
// retried more often than that.
const reachedFor = 10 * time.Minute

// reach records that a budget keeps a pool from growing, and returns a text that says since when.
func (b *budgets) reach(pool, why string, now time.Time) string {
	r := reached{why: why, since: now, at: now}
	if before, ok := b.hit[pool]; ok && before.why == why {
		r.since = before.since
	}
	b.hit[pool] = r
	return "reached since " + r.since.UTC().Format(time.RFC3339)
}

// changes returns the pools whose budget has been reached, has changed, or no longer limits them, each with the budget or "".
func (b *budgets) changes(now time.Time) map[string]string {
	news := map[string]string{}
	for pool, r := range b.hit {
		if now.Sub(r.at) >= reachedFor {
			delete(b.hit, pool)
		} else if r.free.IsZero() && b.told[pool] != r.why {
			news[pool] = r.why
		}
	}
	for pool := range b.told {
		if r, still := b.hit[pool]; !still || !r.free.IsZero() {
			news[pool] = ""
		}
	}
	for pool, why := range news {
		if b.told[pool] = why; why == "" {
			delete(b.told, pool)
		}
	}
	return news
}
