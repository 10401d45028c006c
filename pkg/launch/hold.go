package launch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// holdPoll is how often to check whether another controller still owns nodes and claims.
const holdPoll = time.Second

// HoldChanged tells the Launcher that another controller has begun or ceased to own nodes and claims.
func (m *Launcher) HoldChanged() {
	m.wasHeld.Store(true)
	m.Changed()
}

// readopt takes over what another controller has launched while it owned nodes and claims: nodes in flight that pods may be planned on, so
// that nothing is bought for them a second time.
func (m *Launcher) readopt(ctx context.Context) {
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

// free waits until no other controller owns nodes and claims. Pods that need capacity meanwhile are refused with the reason.
func (m *Launcher) free(ctx context.Context) bool {
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

// refuseHeld refuses pods while launches are paused. They are planned for again when that is over (Changed), not before.
func (m *Launcher) refuseHeld(ctx context.Context, uids []types.UID, why string) {
	m.refuse(ctx, uids, "nothing can be launched: "+why, false)
	if m.hold() == "" {
		m.Changed() // it was over before they were refused
	}
}

// pause waits until no other controller owns nodes and claims, and reports whether it had to wait.
func (m *Launcher) pause(ctx context.Context) (waited bool) {
	for m.hold() != "" && m.sleep(ctx, holdPoll) {
		waited = true
	}
	return waited
}

// held fails the claims of a launch batch whose next call must not be made because another controller owns nodes and claims now. Their pods
// learn the reason when they are planned for again.
func (m *Launcher) held(ctx context.Context, w *batch) bool {
	why := m.hold()
	if why != "" {
		m.fail(ctx, w.claims, "HeldBack", why, true)
	}
	return why != ""
}
