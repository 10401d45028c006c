package repair

import (
	"fmt"
	"time"
)

// percent is the share of a pool's nodes that may be unhealthy, rounded up. If more are, whatever ails them is not their own fault.
const percent = 20

// Breaker counts nodes by pool, and by pool and zone. Nodes without a pool count as those of one pool.
type Breaker map[group]*count

// group is a pool, or a pool's nodes in a zone.
type group struct{ pool, zone string }

type count struct {
	healthy   []time.Time // when each healthy node was launched
	unhealthy int         // number of nodes
	since     time.Time   // when the first of the unhealthy nodes became unhealthy
}

// Add counts a node. f is why it is unhealthy; nil: it is healthy.
func (b Breaker) Add(pool, zone string, launched time.Time, f *Fault) {
	of := []group{{pool, ""}}
	if zone != "" {
		of = append(of, group{pool, zone})
	}
	for _, g := range of {
		c := b[g]
		if c == nil {
			c = &count{}
			b[g] = c
		}
		if f == nil {
			c.healthy = append(c.healthy, launched)
			continue
		}
		c.unhealthy++
		if c.since.IsZero() || f.Since.Before(c.since) {
			c.since = f.Since
		}
	}
}

// all returns how many nodes there are. A healthy node that was launched since the first one became unhealthy has the pods of an unhealthy one, as a
// rule: it doesn't count. Otherwise, when a quarter of a zone's nodes fail, their share would fall to a fifth, which is allowed, as soon as their
// pods run on new nodes.
func (c *count) all() int {
	fresh := 0
	for _, launched := range c.healthy {
		if launched.After(c.since) {
			fresh++
		}
	}
	return len(c.healthy) + c.unhealthy - min(fresh, c.unhealthy)
}

// Open returns why no node of the pool in that zone is repaired, or nil. A pool with fewer than five nodes may have one that is unhealthy,
// so that they are repaired one at a time.
func (b Breaker) Open(pool, zone string) error {
	for _, g := range []group{{pool, ""}, {pool, zone}} {
		c := b[g]
		if c == nil || c.unhealthy == 0 {
			continue
		}
		all := c.all()
		most := (all*percent + 99) / 100
		if c.unhealthy <= most {
			continue
		}
		of := "the NodeClaims without a NodePool"
		if pool != "" {
			of = "NodePool " + pool
		}
		if g.zone != "" {
			of += " in zone " + g.zone
		}
		return fmt.Errorf("%d of %d nodes of %s are unhealthy, and nodes are repaired only while at most %d %% of them are (here %d)", c.unhealthy, all, of, percent, most)
	}
	return nil
}
