package ec2

// Any stands for every type, zone or capacity type in SetCapacity and SetCapacityError.
const Any = "*"

// Unlimited removes a limit.
const Unlimited = -1

// pool identifies one pool of capacity.
type pool struct {
	Type, Zone, CapacityType string
}

// capacities holds the limits, error codes and prices that tests set. A pool without a limit never runs out.
type capacities struct {
	limits map[pool]int
	codes  map[pool]string
	prices map[pool]float64
}

func newCapacities() capacities {
	return capacities{map[pool]int{}, map[pool]string{}, map[pool]float64{}}
}

// SetCapacity sets how many more instances of a type can be launched in a zone as on-demand or spot. Any matches everything; a limit
// set for Any is shared by all pools that it matches, and the most specific limit applies. Terminated instances don't give capacity
// back.
func (s *Sim) SetCapacity(instanceType, zone, capacityType string, n int) {
	s.with(func(w *world) { w.capacity.set(pool{instanceType, zone, capacityType}, n) })
}

// SetCapacityError sets the error code that a fleet reports for pools without capacity instead of InsufficientInstanceCapacity; an
// empty code restores that.
func (s *Sim) SetCapacityError(instanceType, zone, capacityType, code string) {
	s.with(func(w *world) { w.capacity.codes[pool{instanceType, zone, capacityType}] = code })
}

// SetPrice overrides a price in $/h, for new instances and in the answers of the price calls. The price list has one on-demand price
// per region: that of the first zone.
func (s *Sim) SetPrice(instanceType, zone, capacityType string, usd float64) {
	s.with(func(w *world) { w.capacity.prices[pool{instanceType, zone, capacityType}] = usd })
}

func (c *capacities) set(p pool, n int) {
	if n < 0 {
		delete(c.limits, p)
		return
	}
	c.limits[p] = n
}

// generalizations returns the keys that match a pool, most specific first.
func (p pool) generalizations() []pool {
	return []pool{
		p, {p.Type, p.Zone, Any}, {p.Type, Any, p.CapacityType}, {Any, p.Zone, p.CapacityType}, {p.Type, Any, Any}, {Any, p.Zone, Any}, {Any, Any, p.CapacityType},
		{Any, Any, Any},
	}
}

// limit returns the limit that applies to a pool.
func (c *capacities) limit(p pool) (key pool, n int, limited bool) {
	for _, g := range p.generalizations() {
		if n, ok := c.limits[g]; ok {
			return g, n, true
		}
	}
	return pool{}, 0, false
}

// take takes up to n and returns how many it got.
func (c *capacities) take(p pool, n int) int {
	key, left, limited := c.limit(p)
	if !limited {
		return n
	}
	n = min(n, left)
	c.limits[key] = left - n
	return n
}

func (c *capacities) giveBack(p pool, n int) {
	if key, left, limited := c.limit(p); limited {
		c.limits[key] = left + n
	}
}

func (c *capacities) code(p pool) string {
	for _, g := range p.generalizations() {
		if code := c.codes[g]; code != "" {
			return code
		}
	}
	return "InsufficientInstanceCapacity"
}

// depth returns how much spare spot capacity a pool has, from 1 to 10, as the allocation strategies see it.
func (w *world) depth(p pool) int {
	depth := 1 + w.draw("depth", p.Type, p.Zone).IntN(10)
	if _, n, limited := w.capacity.limit(p); limited {
		depth = min(depth, n)
	}
	return depth
}
