package ec2

import (
	"slices"
	"strings"
	"time"
)

// blockReclaim is how long before a capacity block ends EC2 terminates the instances in it.
const blockReclaim = 30 * time.Minute

// Reservation is a capacity reservation that a test can add.
type Reservation struct {
	Type, Zone string
	Count      int
	// Match is targeted (the default) or open. Every matching launch that doesn't opt out uses open reservations.
	Match string
	// Kind is default or capacity-block.
	Kind string
	// End is when the reservation expires; zero: never. EC2 terminates the instances of a capacity block half an hour earlier.
	End           time.Time
	Interruptible bool
	// Owner is the account that shares the reservation with this one; empty: this account owns it.
	Owner string
	Tags  map[string]string
}

type reservation struct {
	Reservation
	id, state string
	used      int
	created   time.Time
}

// Reserve adds a capacity reservation and returns its ID.
func (s *Sim) Reserve(r Reservation) string {
	var id string
	s.with(func(w *world) {
		for _, f := range []struct {
			to  *string
			def string
		}{{&r.Match, "targeted"}, {&r.Kind, "default"}, {&r.Owner, w.cfg.Account}} {
			if *f.to == "" {
				*f.to = f.def
			}
		}
		id = w.id("cr")
		rsv := &reservation{Reservation: r, id: id, state: "active", created: w.now}
		w.reservations = append(w.reservations, rsv)
		if r.End.IsZero() {
			return
		}
		if r.Kind == capacityBlock {
			w.at(r.End.Add(-blockReclaim), func() { w.reclaim(rsv) })
		}
		w.at(r.End, func() { w.expire(rsv) })
	})
	return id
}

// CancelReservation ends a reservation now.
func (s *Sim) CancelReservation(id string) {
	s.with(func(w *world) {
		for _, rsv := range w.reservations {
			if rsv.id == id {
				w.expire(rsv)
			}
		}
	})
}

// reclaim terminates the instances in a capacity block.
func (w *world) reclaim(rsv *reservation) {
	for _, in := range w.instances {
		if in.Reservation == rsv.id && in.live() {
			w.end(in, "Server.InternalError: Capacity block ends")
		}
	}
}

// expire ends a reservation. Its instances keep running as on-demand instances.
func (w *world) expire(rsv *reservation) {
	rsv.state = "expired"
	for _, in := range w.instances {
		if in.Reservation == rsv.id && in.live() {
			in.Reservation = ""
			in.Price, _ = w.price(in.typ, in.Zone, in.CapacityType)
			rsv.used--
		}
	}
}

func (w *world) reservation(id string) *reservation {
	i := slices.IndexFunc(w.reservations, func(r *reservation) bool { return r.id == id })
	if i < 0 {
		return nil
	}
	return w.reservations[i]
}

// available returns how many more instances of the pool, launched with the market option, the reservation can hold.
func (r *reservation) available(p pool, market string) int {
	own := ""
	switch {
	case r.Kind == capacityBlock:
		own = capacityBlock
	case r.Interruptible:
		own = interruptible
	}
	if p.Type != r.Type || p.Zone != r.Zone || p.CapacityType != onDemand || r.state != "active" || market != own {
		return 0
	}
	return r.Count - r.used
}

type capacityReservationItem struct {
	ID            string    `xml:"capacityReservationId"`
	Owner         string    `xml:"ownerId"`
	ARN           string    `xml:"capacityReservationArn"`
	Type          string    `xml:"instanceType"`
	Platform      string    `xml:"instancePlatform"`
	Zone          string    `xml:"availabilityZone"`
	Tenancy       string    `xml:"tenancy"`
	Total         int       `xml:"totalInstanceCount"`
	Available     int       `xml:"availableInstanceCount"`
	State         string    `xml:"state"`
	Start         string    `xml:"startDate"`
	End           string    `xml:"endDate,omitempty"`
	EndType       string    `xml:"endDateType"`
	Match         string    `xml:"instanceMatchCriteria"`
	Created       string    `xml:"createDate"`
	Kind          string    `xml:"reservationType"`
	Interruptible bool      `xml:"interruptible"`
	Tags          []tagItem `xml:"tagSet>item"`
}

func (w *world) describeCapacityReservations(r *Request) (any, error) {
	ids := r.params.strs("CapacityReservationId")
	for _, id := range ids {
		if w.reservation(id) == nil {
			return nil, failf("InvalidCapacityReservationId.NotFound", "The capacity reservation ID '%s' does not exist", id)
		}
	}
	var items []capacityReservationItem
	for _, c := range w.reservations {
		ok, err := r.matches(tagMatcher(c.Tags, map[string]string{
			"instance-type": c.Type, "availability-zone": c.Zone, "state": c.state, "owner-id": c.Owner, "instance-match-criteria": c.Match, "tenancy": "default",
		}))
		if err != nil {
			return nil, err
		}
		if !ok || len(ids) > 0 && !slices.Contains(ids, c.id) {
			continue
		}
		item := capacityReservationItem{
			ID: c.id, Owner: c.Owner, ARN: w.arn("ec2", "capacity-reservation/"+c.id), Type: c.Type, Platform: "Linux/UNIX", Zone: c.Zone, Tenancy: "default",
			Total: c.Count, Available: c.Count - c.used, State: c.state, Start: timestamp(c.created), EndType: "unlimited", Match: c.Match,
			Created: timestamp(c.created), Kind: c.Kind, Interruptible: c.Interruptible, Tags: tagItems(c.Tags),
		}
		if !c.End.IsZero() {
			item.End, item.EndType = timestamp(c.End), "limited"
		}
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b capacityReservationItem) int { return strings.Compare(a.ID, b.ID) })
	items, next, err := page(r, items, 1, 1000, 0, func(c capacityReservationItem) string { return c.ID })
	return struct {
		Reservations []capacityReservationItem `xml:"capacityReservationSet>item"`
		Next         string                    `xml:"nextToken,omitempty"`
	}{items, next}, err
}
