package launch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// holdPoll is how often it is asked whether somebody else still owns the nodes.
const holdPoll = time.Second

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

// held fails the claims of a wave whose next call must not be made, because somebody else has come to own nodes and claims.
// Their pods are told when they are planned for again.
func (m *Motor) held(ctx context.Context, w *wave) bool {
	why := m.hold()
	if why != "" {
		m.fail(ctx, namesOf(w.claims), "HeldBack", why, true)
	}
	return why != ""
}
