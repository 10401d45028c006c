package repair

import "fmt"

// percent is the share of a pool's nodes that may be unhealthy, rounded up. If more are, whatever ails them is not their own fault.
const percent = 20

// Breaker counts a pool's nodes. Those without a pool count as one.
type Breaker map[group]count

// group is a pool, or a pool's nodes in a zone.
type group struct{ pool, zone string }

type count struct{ all, unhealthy int }

// Add counts a node.
func (b Breaker) Add(pool, zone string, unhealthy bool) {
	of := []group{{pool, ""}}
	if zone != "" {
		of = append(of, group{pool, zone})
	}
	for _, g := range of {
		c := b[g]
		c.all++
		if unhealthy {
			c.unhealthy++
		}
		b[g] = c
	}
}

// Open returns why no node of the pool in that zone is repaired, or nil. A pool with fewer than five nodes may have one that is unhealthy,
// so that they are repaired one at a time.
func (b Breaker) Open(pool, zone string) error {
	for _, g := range []group{{pool, ""}, {pool, zone}} {
		c := b[g]
		most := (c.all*percent + 99) / 100
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
		return fmt.Errorf("%d of %d nodes of %s are unhealthy, and nodes are repaired only while at most %d %% of them are (here %d)", c.unhealthy, c.all, of, percent, most)
	}
	return nil
}
