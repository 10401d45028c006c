package launch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// holdPoll is how often it is asked whether somebody else still owns the nodes.
const holdPoll = time.Second

// HoldChanged tells the motor that somebody else has come to own nodes and claims, or does so no more.
func (m *Motor) HoldChanged() {
	m.wasHeld.Store(true)
	m.Changed()
}

// readopt picks up what somebody else has launched while it owned nodes and claims: room on its way that pods may be planned
// on, so that nothing is bought for them a second time.
func (m *Motor) readopt(ctx context.Context) {
	if m.hold() != "" || !m.wasHeld.Swap(false) {
		return
	}
	missing := m.missingDaemons(ctx)
	for _, c := range m.claims.Claims() {
		known := false
		m.reservations.read(func(l *ledger.Ledger) { known = l.Has(c.Name) })
		if known || !c.Launched || c.Initialized || c.Deleting {
			continue
		}
		m.restore(c, nil, missing(c.NodeName, c.Labels, c.Taints))
		if c.NodeName == "" {
			m.wg.Go(func() { m.finish(ctx, c, instanceOf(c), c.Labels) })
		} else {
			m.named(c.Name, c.NodeName, c.ProviderID)
		}
	}
}

// free waits until nobody else owns nodes and claims. Pods that ask for capacity meanwhile are told.
func (m *Motor) free(ctx context.Context) bool {
	for why := m.hold(); why != ""; why = m.hold() {
		if waiting, _ := m.gather(ctx); len(waiting) > 0 {
			m.refuseHeld(ctx, uidsOf(waiting), why)
		}
		if !m.sleep(ctx, holdPoll) {
			return false
		}
	}
	return ctx.Err() == nil
}

// refuseHeld tells pods why nothing is launched for them. They are planned for again when that is over (Changed), not before.
func (m *Motor) refuseHeld(ctx context.Context, uids []types.UID, why string) {
	m.refuse(ctx, uids, "nothing can be launched: "+why, false)
	if m.hold() == "" {
		m.Changed() // it was over before they were told
	}
}

// pause waits until nobody else owns nodes and claims, and says whether it had to.
func (m *Motor) pause(ctx context.Context) (waited bool) {
	for m.hold() != "" && m.sleep(ctx, holdPoll) {
		waited = true
	}
	return waited
}

// held fails the claims of a launch batch whose next call must not be made, because somebody else has come to own nodes and claims.
// Their pods are told when they are planned for again.
func (m *Motor) held(ctx context.Context, w *batch) bool {
	why := m.hold()
	if why != "" {
		m.fail(ctx, w.claims, "HeldBack", why, true)
	}
	return why != ""
}
