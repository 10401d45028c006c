package guard

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// repairs is the workload that stands for the repair of nodes. Its breaker in a pool doesn't pause launches: it pauses the repair of nodes that
// were launched since another node of the pool was repaired.
var repairs = Workload{Owner: "repairs"}

// repairLead is how long before an unhealthy node is ended its replacement may have been bought.
const repairLead = 15 * time.Minute

// RepairKey returns the key of a pool's repairs.
func RepairKey(pool string) Key { return PodKey(pool, repairs) }

// Repair reports whether the key is one of repairs.
func (k Key) Repair() bool { return k.Pool != "" && k.Workload == repairs }

// Repaired records that a node of the pool is ended because it is unhealthy. name is that of its NodeClaim; a repeated call changes nothing.
//
//	nothing known -> remembered:      the first repair
//	remembered -> open:               a node that was bought since is repaired, too: the next one like it has to wait
//	open -> open, for twice as long:  another such node is repaired after that wait
//	remembered, open -> nothing known: after a day without a repair
func (g *Guard) Repaired(pool, name string, f Fault, bought, now time.Time) {
	k := RepairKey(pool)
	b := g.breakers[k]
	if pool == "" || b != nil && b.repaired == name {
		return
	}
	f.Message = "NodeClaim " + name + ": " + f.Message
	life := min(now.Sub(bought), maxPause)
	switch {
	case b == nil || !b.Open() && now.Sub(b.Closed) >= memory:
		g.breakers[k] = &Breaker{Key: k, Cause: f.Cause, Message: f.Message, Since: now, Closed: now, repaired: name}
		return
	case !b.suspects(bought, now):
		if !b.Open() {
			b.Closed = now
		}
	case b.Open():
		b.Life, b.Message = max(b.Life, life), f.Message
		b.fail(now)
		g.note(Paused, b)
	default:
		first := b.Since
		g.open(k, f, life, now)
		b.Since = first
	}
	b.repaired = name
}

// HoldsRepair returns the open breaker that stops the repair of a node of the pool; nil: none.
func (g *Guard) HoldsRepair(pool string, bought, now time.Time) *Breaker {
	b := g.breakers[RepairKey(pool)]
	if b == nil || !b.Open() || !now.Before(b.Next) || !b.suspects(bought, now) {
		return nil
	}
	return b
}

// suspects reports whether a node may be the replacement of one that was repaired, and became unhealthy itself so soon that this could go on
// for ever.
func (b *Breaker) suspects(bought, now time.Time) bool {
	return now.Sub(bought) < memory && bought.After(b.Since.Add(-repairLead))
}

// repairText is Text for a breaker of repairs.
func (b *Breaker) repairText() string {
	return fmt.Sprintf("nodes of pool %s that were launched since %s became unhealthy, too, so no other one is repaired before %s, or after a change (annotation %s: at once); the last was %s",
		b.Key.Pool, b.Since.UTC().Format(time.RFC3339), b.Next.UTC().Format(time.RFC3339), objects.AnnotationRetry, cmp.Or(b.Message, b.Cause))
}
