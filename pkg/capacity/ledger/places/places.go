// Package places keeps the places in a plan order that pods have lost, for the slots that they get next.
package places

import (
	"slices"
	"time"
)

// hold is how long a place is kept: planning and filters take a second or two.
const hold = 10 * time.Second

// Kept are the places that are kept. The zero value has none.
type Kept struct{ places []place }

type place struct {
	order int
	until time.Time
}

// Keep keeps a place for a while.
func (k *Kept) Keep(order int, now time.Time) {
	k.places = append(k.places, place{order, now.Add(hold)})
}

// Before reports whether a place before the given one is kept.
func (k *Kept) Before(order int) bool {
	return slices.ContainsFunc(k.places, func(p place) bool { return p.order < order })
}

// Take returns the first place that is kept, and no longer keeps it; if there is none, it returns the given one.
func (k *Kept) Take(otherwise int) int {
	if len(k.places) == 0 {
		return otherwise
	}
	first := slices.MinFunc(k.places, func(a, b place) int { return a.order - b.order })
	k.places = slices.DeleteFunc(k.places, func(p place) bool { return p == first })
	return first.order
}

// Tick ends the places whose time is over.
func (k *Kept) Tick(now time.Time) {
	k.places = slices.DeleteFunc(k.places, func(p place) bool { return !now.Before(p.until) })
}
