package provisioning

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// Verdicts has the spending guard judge instances, and plans for the demand that its verdicts concern.
type Verdicts struct {
	reservations *reservations.Ledger
	pending      *pending.Pods
	spending     *spending.Guard
	triggers     *Triggers
}

// Tend gives verdicts, reports what has happened to breakers, and has the demand planned for that these concern.
func (ve *Verdicts) Tend(ctx context.Context) {
	if ve.spending == nil {
		return
	}
	ve.rejected()
	closed, changed := ve.spending.Tend(ctx, ve.reservations)
	for _, key := range closed {
		ve.forgive(key)
	}
	if changed {
		ve.triggers.Changed() // refused pods are planned for again, or get the current reason
	}
	if len(ve.spending.Due()) > 0 {
		ve.triggers.Replan()
	}
}

// rejected tells the guard which pods the filters have refused on nodes launched for them, and which could not use them.
func (ve *Verdicts) rejected() {
	if ve.spending == nil {
		return
	}
	for _, r := range ve.reservations.TakeRejected() {
		if r.Waited {
			if pod := ve.pending.Get(r.Pod.UID); pod != nil {
				ve.spending.Fail(r.Claim, spending.WaitedInVain(ve.spending.WorkloadOf(pod), r.Reason))
			}
			continue
		}
		ve.spending.RejectedByFilters(r.Claim, ve.pending.Get(r.Pod.UID), r.Plugin, r.Reason, r.Beside)
	}
}

// catchUp has the guard give the verdicts that are due, before a plan is made.
func (ve *Verdicts) catchUp() {
	ve.rejected()
	ve.spending.Settle(ve.reservations)
}

// forgive ends the back-off of the pods whose breaker has closed: the cause of their failed launches is over.
func (ve *Verdicts) forgive(key guard.Key) {
	var uids []types.UID
	for _, pod := range ve.pending.All() {
		if key.Machine() || key.PoolWide() || ve.spending.WorkloadOf(pod) == key.Workload {
			uids = append(uids, pod.UID)
		}
	}
	ve.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Forgive(uids, now) })
}
