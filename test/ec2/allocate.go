package ec2

import (
	"cmp"
	"fmt"
	"slices"
)

// order sorts the choices as the allocation strategy tries them.
func (w *world) order(f *fleet) {
	const deep = 6 // pools at least this deep count as deep
	for _, c := range f.choices {
		if c.failure == nil {
			c.depth = w.depth(c.pool)
		}
	}
	byPrice := func(a, b *choice) int { return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(a.order, b.order)) }
	slices.SortStableFunc(f.choices, func(a, b *choice) int {
		switch f.strategy {
		case "price-capacity-optimized":
			return cmp.Or(cmp.Compare(shallow(a, deep), shallow(b, deep)), byPrice(a, b))
		case "capacity-optimized":
			return cmp.Or(cmp.Compare(b.depth, a.depth), byPrice(a, b))
		case "capacity-optimized-prioritized":
			return cmp.Or(cmp.Compare(b.depth, a.depth), cmp.Compare(a.priority, b.priority), byPrice(a, b))
		case "prioritized":
			return cmp.Or(cmp.Compare(a.priority, b.priority), byPrice(a, b))
		default:
			return byPrice(a, b)
		}
	})
}

func shallow(c *choice, deep int) int { return max(0, deep-c.depth) }

// allocate takes capacity for the fleet, and says how much it got.
func (w *world) allocate(f *fleet) int {
	got, tried := 0, map[pool]bool{}
	for _, c := range f.choices {
		if got == f.total {
			break
		}
		if c.failure != nil {
			continue
		}
		want := f.total - got
		addresses := c.subnet.free()
		for _, o := range f.choices {
			if o.subnet == c.subnet {
				addresses -= o.taken
			}
		}
		c.taken = w.reserve(c, min(want, addresses))
		got += c.taken
		switch {
		case c.taken == want:
		case addresses < want:
			c.failure = failf("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", c.subnet.id)
		case !tried[c.pool]:
			c.failure = w.insufficient(c)
		}
		tried[c.pool] = true
	}
	return got
}

// reserve takes up to n from the pool, or from the capacity reservation the choice targets.
func (w *world) reserve(c *choice, n int) int {
	if rsv := w.reservation(c.data.reservation); rsv != nil {
		n = min(n, rsv.available(c.pool))
		rsv.used += n
		return n
	}
	return w.capacity.take(c.pool, n)
}

func (w *world) insufficient(c *choice) *apiError {
	if c.data.reservation != "" {
		return failf("ReservationCapacityExceeded", "Requested instance count exceeds available capacity for Capacity Reservation ID: %s.", c.data.reservation)
	}
	code := w.capacity.code(c.pool)
	if code == "InsufficientInstanceCapacity" {
		return failf(code, "We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). Our system will be working on provisioning additional capacity.",
			c.pool.Type, c.pool.Zone)
	}
	return failf(code, "The pool %s in %s can't be used now.", c.pool.Type, c.pool.Zone)
}

// fulfil launches what was taken, or gives it back when the minimum was missed.
func (w *world) fulfil(r *Request, f *fleet, got int) fleetAnswer {
	answer := fleetAnswer{ID: w.id("fleet")}
	missed := got < f.min
	for _, c := range f.choices {
		from := templateAndOverrides{c.config, c.override}
		if from.Overrides.Zone == "" {
			from.Overrides.Zone = c.pool.Zone
		}
		if c.failure != nil {
			answer.Errors = append(answer.Errors, fleetError{from, f.capacityType, c.failure.Code, c.failure.Message})
		}
		switch {
		case c.taken == 0:
		case missed:
			w.release(c)
		default:
			answer.Instances = append(answer.Instances, w.launchChoice(r, f, c, from))
		}
	}
	if missed {
		answer.Errors = append(answer.Errors, fleetError{Lifecycle: f.capacityType, Code: "UnfulfillableCapacity",
			Message: fmt.Sprintf("Unable to fulfill capacity: %d of at least %d.", got, f.min)})
	}
	return answer
}

func (w *world) release(c *choice) {
	if rsv := w.reservation(c.data.reservation); rsv != nil {
		rsv.used -= c.taken
		return
	}
	w.capacity.giveBack(c.pool, c.taken)
}

func (w *world) launchChoice(r *Request, f *fleet, c *choice, from templateAndOverrides) fleetInstances {
	out := fleetInstances{From: from, Lifecycle: f.capacityType, Type: c.typ.Name}
	launchID := w.id("r")
	for range c.taken {
		in := w.launch(c.data, c.typ, c.subnet, f.capacityType, merged(c.data.tags, f.tags), r.Token, launchID)
		in.template = c.config.ID
		out.IDs = append(out.IDs, in.ID)
		r.results = append(r.results, in.ID)
	}
	return out
}
