package ec2

import (
	"cmp"
	"fmt"
	"slices"
)

// order sorts the choices into the order in which the allocation strategy tries them.
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

// allocate takes capacity for the fleet and returns how much it got.
func (w *world) allocate(f *fleet) int {
	got, tried := 0, map[pool]bool{}
	byGroup := map[*placementGroup]map[string]int{} // taken by this call, by zone
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
		group, _ := w.placementGroup(c.data.placement)
		if byGroup[group] == nil {
			byGroup[group] = map[string]int{}
		}
		room, crowded := w.placeable(group, c.pool.Zone, want, byGroup[group])
		room, beyond := w.withinQuota(f, c, room)
		c.taken = w.reserve(c, min(want, addresses, room))
		got += c.taken
		byGroup[group][c.pool.Zone] += c.taken
		switch {
		case c.taken == want:
		case crowded != nil:
			c.failure = crowded
		case beyond != nil:
			c.failure = beyond
		case addresses < want:
			c.failure = failf("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", c.subnet.id)
		case !tried[c.pool]:
			c.failure = w.insufficient(c)
		}
		tried[c.pool] = true
	}
	return got
}

// SetQuota bounds the vCPUs of a capacity type (on-demand or spot) that may run at once; instances count until they are terminated.
// Unlimited removes the quota.
func (s *Sim) SetQuota(capacityType string, vcpus int) {
	s.with(func(w *world) {
		if w.quotas[capacityType] = vcpus; vcpus < 0 {
			delete(w.quotas, capacityType)
		}
	})
}

// SetSpotRole creates or deletes the account's service-linked role for spot instances.
func (s *Sim) SetSpotRole(there bool) { s.with(func(w *world) { w.spotRole = there }) }

// withinQuota returns how many of n more instances the account's quota allows.
func (w *world) withinQuota(f *fleet, c *choice, n int) (int, *apiError) {
	quota, limited := w.quotas[f.capacityType]
	if !limited {
		return n, nil
	}
	for _, in := range w.instances {
		if in.CapacityType == f.capacityType && in.State != terminated {
			quota -= in.typ.VCPUs
		}
	}
	for _, o := range f.choices {
		if o.typ != nil {
			quota -= o.taken * o.typ.VCPUs
		}
	}
	room := max(0, quota/c.typ.VCPUs)
	if room >= n {
		return n, nil
	}
	if f.capacityType == spot {
		return room, failf("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
	}
	return room, failf("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of %d allows for the instance bucket that the specified instance type belongs to.", w.quotas[f.capacityType])
}

// reserve takes capacity for up to n instances: from the capacity reservation that the choice targets, otherwise from matching open
// reservations and then from the pool.
func (w *world) reserve(c *choice, n int) int {
	if rsv := w.reservation(c.data.reservation); rsv != nil {
		n = min(n, rsv.available(c.pool, c.data.market))
		c.assign(rsv, n)
		return n
	}
	took := 0
	if c.data.preference == "" || c.data.preference == "open" {
		for _, rsv := range w.reservations {
			if rsv.Match == "open" && took < n {
				k := min(n-took, rsv.available(c.pool, c.data.market))
				c.assign(rsv, k)
				took += k
			}
		}
	}
	return took + w.capacity.take(c.pool, n-took)
}

// assign assigns n of the choice's instances to a reservation.
func (c *choice) assign(rsv *reservation, n int) {
	rsv.used += n
	for range n {
		c.covered = append(c.covered, rsv)
	}
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

// fulfil launches the taken instances, or gives their capacity back if they are fewer than the minimum.
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
	for _, rsv := range c.covered {
		rsv.used--
	}
	w.capacity.giveBack(c.pool, c.taken-len(c.covered))
}

func (w *world) launchChoice(r *Request, f *fleet, c *choice, from templateAndOverrides) fleetInstances {
	out := fleetInstances{From: from, Lifecycle: f.capacityType, Type: c.typ.Name}
	launchID := w.id("r")
	d := c.data.tagged(f.tags)
	for i := range c.taken {
		var rsv *reservation
		if i < len(c.covered) {
			rsv = c.covered[i]
		}
		in := w.launch(d, c.typ, c.subnet, f.capacityType, rsv, r.Token, launchID)
		in.template = c.config.ID
		out.IDs = append(out.IDs, in.ID)
		r.results = append(r.results, in.ID)
	}
	return out
}
