package karpenter

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Usage sums up the resources that the claims of each pool use. It is updated with every claim that is added, changed or deleted:
// every plan reads all pools, and adding up thousands of claims each time would slow planning down.
//
//	reserved (about to be written) -> known (written) -> deleted
//	        \_ released (it won't be written)
//
// It has no lock of its own; the store guards it with the lock of its claims, so that each claim counts exactly once in every state, and two
// callers who reserve at the same time can't both get what is left.
type Usage struct {
	counted map[string]counted // by the claim's name
	pools   map[string]*poolUse
	// limits hold for the claims of all pools together; all is the sum of what these claims count against the limits.
	limits, all capacity.Resources
}

// counted is what one claim adds to the sums of its pool.
type counted struct {
	pool     string
	takes    capacity.Resources // what the claim counts against limits
	launched bool
	reserved bool // the claim is not written yet
}

// poolUse is the sum of a pool's claims.
type poolUse struct {
	// takes is what all claims count against the pool's limits; has is the sum for launched claims only, whose capacity is known.
	takes, has capacity.Resources
	claims     int
}

// NewUsage returns a value that counts no claim. limits hold for the claims of all pools together; a resource not listed is not limited.
func NewUsage(limits capacity.Resources) Usage {
	return Usage{counted: map[string]counted{}, pools: map[string]*poolUse{}, limits: limits, all: capacity.Resources{}}
}

// Set counts a claim as it is now, instead of what it counted for before.
func (u *Usage) Set(c *capacity.Claim, reserved bool) {
	u.Drop(c.Name)
	one := counted{c.Pool, c.Takes(), c.Launched, reserved}
	u.counted[c.Name] = one
	p := u.pools[c.Pool]
	if p == nil {
		p = &poolUse{takes: capacity.Resources{}, has: capacity.Resources{}}
		u.pools[c.Pool] = p
	}
	p.claims++
	p.takes.Add(one.takes, 1)
	u.all.Add(one.takes, 1)
	if one.launched {
		p.has.Add(one.takes, 1)
	}
}

// Drop stops counting a claim.
func (u *Usage) Drop(name string) {
	one, ok := u.counted[name]
	if !ok {
		return
	}
	delete(u.counted, name)
	u.all.Sub(one.takes)
	p := u.pools[one.pool]
	if p.claims--; p.claims == 0 {
		delete(u.pools, one.pool)
		return
	}
	p.takes.Sub(one.takes)
	if one.launched {
		p.has.Sub(one.takes)
	}
}

// Takes returns the resources that a pool's claims count against its limits. The result must not be changed.
func (u *Usage) Takes(pool string) capacity.Resources {
	if p := u.pools[pool]; p != nil {
		return p.takes
	}
	return nil
}

// Has returns the sum of the capacity of a pool's launched claims. The result must not be changed.
func (u *Usage) Has(pool string) capacity.Resources {
	if p := u.pools[pool]; p != nil {
		return p.has
	}
	return nil
}

// Total returns the limit of all pools and what their claims use of it; nil: there is none.
func (u *Usage) Total() *capacity.Total {
	if len(u.limits) == 0 {
		return nil
	}
	total := &capacity.Total{Limits: u.limits, Used: capacity.Resources{}}
	for name := range u.limits {
		total.Used[name] = u.all[name]
	}
	return total
}

// Over returns which limit of its pool one more claim would exceed, as a capacity.ErrOverLimit; nil: none.
func (u *Usage) Over(limits capacity.Resources, c *capacity.Claim) error {
	limits, used, asks := withSpare(limits, c), u.Takes(c.Pool), c.Takes()
	if name, over := exceeded(limits, used, asks); over {
		return fmt.Errorf("%w: limit of %s %s reached: %s left, up to %s needed", capacity.ErrOverLimit, name, amount(name, limits[name]), amount(name, max(0, limits[name]-used[name])), amount(name, asks[name]))
	}
	return nil
}

// OverTotal returns which limit of all pools together one more claim would exceed, as a capacity.ErrOverTotal; nil: none.
func (u *Usage) OverTotal(c *capacity.Claim) error {
	if len(u.limits) == 0 {
		return nil
	}
	asks := c.Takes()
	if name, over := exceeded(withSpare(u.limits, c), u.all, asks); over {
		return fmt.Errorf("%w: they use %s %s of %s (limits of ProvisionArgs), up to %s more needed", capacity.ErrOverTotal, name, amount(name, u.all[name]), amount(name, u.limits[name]), amount(name, asks[name]))
	}
	return nil
}

// exceeded returns the first resource, by name, of which used and asks together would be more than its limit allows. A resource that asks doesn't
// contain exceeds no limit.
func exceeded(limits, used, asks capacity.Resources) (name corev1.ResourceName, over bool) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if asks[name] > 0 && used[name]+asks[name] > limits[name] {
			return name, true
		}
	}
	return "", false
}

// withSpare returns the limits that hold for a claim. If the claim's node takes the place of another node of a static pool, the limit on the number
// of nodes is one higher: otherwise no node could be replaced in a static pool whose replicas use up that limit.
func withSpare(limits capacity.Resources, c *capacity.Claim) capacity.Resources {
	most, limited := limits[capacity.ResourceNodes]
	if !limited || !c.Spare {
		return limits
	}
	limits = limits.Clone()
	limits[capacity.ResourceNodes] = most + 1
	return limits
}

// amount returns an amount of a resource for people.
func amount(name corev1.ResourceName, v int64) string {
	q := capacity.Resources{name: v}.List()[name]
	return q.String()
}

// Counts reports whether a claim is counted, and whether it is only reserved.
func (u *Usage) Counts(claim string) (counted, reserved bool) {
	one, ok := u.counted[claim]
	return ok, one.reserved
}
