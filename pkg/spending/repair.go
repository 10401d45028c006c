package spending

import (
	"errors"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// Repaired records that a claim is about to be ended because its node is unhealthy, for the reason why. bought is when its instance was
// launched; it counts only if the guard doesn't watch the instance. The end of an instance that has not served yet is a machine fault.
func (g *Guard) Repaired(claim, pool, why string, bought time.Time) {
	if g == nil {
		return
	}
	if g.Decided(claim) {
		g.Ending(claim, nil)
	} else {
		g.Ending(claim, &guard.Fault{Machine: true, Cause: "unhealthy", Message: why})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.state.instances.byClaim[claim]; b != nil {
		bought = b.at
	}
	g.state.breakers.Repaired(pool, claim, guard.Fault{Cause: "unhealthy", Message: why}, bought, g.clock.Now())
	g.state.dirty[guard.OwnerOf(guard.RepairKey(pool))] = true
	g.state.notice()
}

// HoldsRepair returns why an unhealthy node of the pool must not be repaired now, or nil: it was launched since a first node was repaired,
// and another one that was launched since then has been repaired already.
func (g *Guard) HoldsRepair(pool string, bought time.Time) error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.state.breakers.HoldsRepair(pool, bought, g.clock.Now()); b != nil {
		return errors.New(b.Text())
	}
	return nil
}
