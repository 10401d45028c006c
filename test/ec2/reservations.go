package ec2

import (
	"slices"
	"strings"
	"time"
)

// reservation is an open or targeted on-demand capacity reservation.
type reservation struct {
	id, typ, zone string
	total, used   int
	created       time.Time
	tags          map[string]string
}

// AddReservation reserves capacity of a type in a zone and gives the reservation's id. Launches use it when they target
// the id.
func (s *Sim) AddReservation(instanceType, zone string, n int, tags map[string]string) string {
	var id string
	s.with(func(w *world) {
		id = w.id("cr")
		w.reservations = append(w.reservations, &reservation{id: id, typ: instanceType, zone: zone, total: n, created: w.now, tags: merged(tags, nil)})
	})
	return id
}

func (w *world) reservation(id string) *reservation {
	i := slices.IndexFunc(w.reservations, func(r *reservation) bool { return r.id == id })
	if i < 0 {
		return nil
	}
	return w.reservations[i]
}

// available is how many instances of the pool the reservation can still take.
func (r *reservation) available(p pool) int {
	if p.Type != r.typ || p.Zone != r.zone || p.CapacityType != onDemand {
		return 0
	}
	return r.total - r.used
}

type capacityReservationItem struct {
	ID        string    `xml:"capacityReservationId"`
	Owner     string    `xml:"ownerId"`
	ARN       string    `xml:"capacityReservationArn"`
	Type      string    `xml:"instanceType"`
	Platform  string    `xml:"instancePlatform"`
	Zone      string    `xml:"availabilityZone"`
	Tenancy   string    `xml:"tenancy"`
	Total     int       `xml:"totalInstanceCount"`
	Available int       `xml:"availableInstanceCount"`
	State     string    `xml:"state"`
	Start     string    `xml:"startDate"`
	EndType   string    `xml:"endDateType"`
	Match     string    `xml:"instanceMatchCriteria"`
	Created   string    `xml:"createDate"`
	Kind      string    `xml:"reservationType"`
	Tags      []tagItem `xml:"tagSet>item"`
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
		ok, err := r.matches(tagMatcher(c.tags, map[string]string{
			"instance-type": c.typ, "availability-zone": c.zone, "state": "active", "owner-id": w.cfg.Account, "instance-match-criteria": "targeted", "tenancy": "default",
		}))
		if err != nil {
			return nil, err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, c.id)) {
			items = append(items, capacityReservationItem{
				c.id, w.cfg.Account, w.arn("ec2", "capacity-reservation/"+c.id), c.typ, "Linux/UNIX", c.zone, "default", c.total, c.total - c.used, "active",
				timestamp(c.created), "unlimited", "targeted", timestamp(c.created), "default", tagItems(c.tags),
			})
		}
	}
	slices.SortFunc(items, func(a, b capacityReservationItem) int { return strings.Compare(a.ID, b.ID) })
	items, next, err := page(r, items, 1, 1000, 0, func(c capacityReservationItem) string { return c.ID })
	return struct {
		Reservations []capacityReservationItem `xml:"capacityReservationSet>item"`
		Next         string                    `xml:"nextToken,omitempty"`
	}{items, next}, err
}
