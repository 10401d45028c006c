// Package limits knows what bounds plans and changes without an event of pools or offerings: limits that refused pods wait for (Relief), storage that
// nodes have published (Storage), and the devices of nodes (Devices).
package limits

import (
	"sync"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// reliefPause is the least time between two plans for pods that wait for a pool's limit: claims often end one after the other.
const reliefPause = 5 * time.Second

// Relief knows the limits that refused pods wait for: maxClaimsInFlight, the limits of pools and that of all pools. No event of pools or offerings
// shows that a limit has capacity again, and the back-off of such pods grows to minutes. Safe for concurrent use.
type Relief struct {
	most int // maxClaimsInFlight
	mu   sync.Mutex
	// inFlight: a plan was cut to keep maxClaimsInFlight.
	inFlight bool
	pools    map[string]bool // pools whose limits refused pods may wait for
	total    bool            // refused pods may wait for the limit of all pools
	ended    bool            // a claim that counts against a limit of pools or total has ended since pods were refused
	during   map[string]bool // pools of claims that have ended since the current or last plan began
	busy     bool            // a plan is being made, whose refusals are not recorded yet
	last     time.Time       // when Due last reported that such a claim has ended
}

// New returns a Relief that knows of no pods. most is maxClaimsInFlight.
func New(most int) *Relief { return &Relief{most: most} }

// Begins notes that a plan begins to read what claims use of their limits. Call the returned func once its pods have been refused.
func (r *Relief) Begins() (ends func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.during, r.busy = map[string]bool{}, true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy = false
	}
}

// Crowded notes that a plan was cut to keep maxClaimsInFlight.
func (r *Relief) Crowded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight = true
}

// Limited notes that pods were refused which may be waiting for a limit of the pool.
func (r *Relief) Limited(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pools == nil {
		r.pools = map[string]bool{}
	}
	r.pools[pool] = true
	r.ended = r.ended || r.during[pool] || r.during[""]
}

// TotalLimited notes that pods were refused which may be waiting for the limit of all pools.
func (r *Relief) TotalLimited() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total = true
	r.ended = r.ended || len(r.during) > 0
}

// Refused notes the limits that the pods of a plan's refusals may be waiting for.
func (r *Relief) Refused(pools []*capacity.Pool, all []capacity.Refusal) {
	limits := map[string]bool{} // those that are not noted yet
	for _, p := range pools {
		if len(p.Limits) > 0 {
			limits[p.Name] = true
		}
	}
	total := capacity.TotalOf(pools) != nil
	for i := range all {
		if len(limits) == 0 && !total {
			return
		}
		if !all[i].Retryable {
			continue
		}
		if total && len(all[i].Reasons) > 0 {
			r.TotalLimited()
			total = false
		}
		for _, reason := range all[i].Reasons {
			if limits[reason.Pool] {
				r.Limited(reason.Pool)
				delete(limits, reason.Pool)
			}
		}
	}
}

// ClaimEnded notes that a claim no longer counts against its pool's limits and that of all pools. An empty pool: its pool is not known.
func (r *Relief) ClaimEnded(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = r.ended || r.total || r.pools[pool] || pool == "" && len(r.pools) > 0
	if r.during != nil {
		r.during[pool] = true
	}
}

// Due reports whether a limit that pods wait for has capacity again. inFlight counts the claims that aren't initialized. A tenth of
// maxClaimsInFlight, or one claim, has to be free: less isn't worth another plan.
func (r *Relief) Due(now time.Time, inFlight func() int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		return false
	}
	if r.inFlight && r.most-inFlight() >= max(1, r.most/10) {
		r.inFlight = false
		return true
	}
	if r.ended && now.Sub(r.last) >= reliefPause {
		r.ended, r.pools, r.total, r.last = false, nil, false, now
		return true
	}
	return false
}
