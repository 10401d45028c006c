package disruption

import (
	"errors"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/rebalance"
)

const (
	// moveBackOff is for how long the nodes of a move that failed are no candidates. If nodes were bought or Deployments restarted for it, that doubles
	// each time, up to moveBackOffMost: the cause of the failure may last, and nodes must not be bought again and again in vain.
	moveBackOff     = 15 * time.Minute
	moveBackOffMost = 4 * time.Hour
	// demandBackOff takes the place of moveBackOff if pending pods needed the capacity, or a template has changed: nothing is wrong with the move.
	// If nodes were bought, it doubles up to moveBackOff.
	demandBackOff = time.Minute
)

// moveMemory is what is remembered of moves that have ended.
type moveMemory struct {
	failed   map[string]failure   // by the UID of claims
	received map[string]time.Time // until when nodes that took pods are no candidates, by name
	ended    bool                 // a move has ended since the last request
}

// failure is why a node's move failed, and until when the node is no candidate.
type failure struct {
	until  time.Time
	err    error
	bought int  // how many times in a row nodes were bought, or Deployments restarted, in vain. It is forgotten moveBackOffMost after until.
	forced bool // the move had to be made (move.forced). After a failed move that was to save money, one that has to be made is still planned
}

// fail records that a move of a node has failed. bought: nodes were bought for it, or Deployments restarted.
func (m *moveMemory) fail(of *candidate, why error, forced, bought bool, now time.Time) {
	uid := of.uid()
	wait, most := moveBackOff, moveBackOffMost
	if errors.Is(why, consolidation.ErrDemand) || errors.Is(why, errTemplate) {
		wait, most = demandBackOff, moveBackOff
	}
	f := failure{err: why, bought: m.failed[uid].bought, forced: forced}
	if bought {
		f.bought++
		wait = min(wait<<min(f.bought-1, 10), most)
	}
	f.until = now.Add(max(wait, rebalance.Rest(of.claim)<<min(max(f.bought-1, 0), 3)))
	m.failed[uid] = f
}
