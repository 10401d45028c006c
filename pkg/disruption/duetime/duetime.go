// Package duetime remembers since when nodes that have to end are due. The time for their replacement counts from then.
package duetime

import "time"

// Times are since when nodes are due, by the UID of their claims.
type Times map[string]Time

// Time is since when a node is due. It may begin anew, but not for ever: where passes take so long that nothing stays reserved between them, a node
// whose pods fit nowhere would never be drained.
type Time struct {
	At   time.Time
	anew int // how often it has begun anew
}

// anewMost is how often the time for a replacement begins anew.
const anewMost = 2

// Of returns since when a node, which is due now, has been due.
func (t Times) Of(uid string, now time.Time) Time {
	if since, known := t[uid]; known {
		return since
	}
	return Time{At: now}
}

// Anew has the time of all nodes begin anew, anewMost times for each at most.
func (t Times) Anew(now time.Time) {
	for uid, since := range t {
		if since.anew < anewMost {
			t[uid] = Time{At: now, anew: since.anew + 1}
		}
	}
}
