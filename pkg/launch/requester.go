package launch

import (
	"context"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// ledgerRequester is the requester of claims for pods: the ledger knows whether pods still need them.
type ledgerRequester struct{ reservations *reservations.Ledger }

// Needed reports whether pods still need the claim's node. If they do, the claim can't be cancelled from here on; if not, it is removed
// from the ledger.
func (r ledgerRequester) Needed(claim string) (yes bool, why string) {
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		if yes = l.Launching(claim, now); !yes {
			l.ClaimGone(claim, "no pod needs it any more", true, now)
		}
	})
	return yes, "its pods are gone"
}

// Failed does nothing: the claim ends, and its pods, which are back in the queue, are planned anew.
func (ledgerRequester) Failed(context.Context, *capacity.Claim, string, string) (stays bool) {
	return false
}

// requesters finds who requested the instances of claims that were written before a restart.
type requesters map[capacity.Purpose]provisioning.Requester

// of returns the requester of a recorded launch. If none is recorded (rec is nil), or its purpose is one that only a later version knows, it
// returns that of claims for pods: such claims end when their launch fails.
func (r requesters) of(rec *capacity.LaunchBatch) provisioning.Requester {
	if rec != nil && r[rec.For] != nil {
		return r[rec.For]
	}
	return r[capacity.ForPods]
}
