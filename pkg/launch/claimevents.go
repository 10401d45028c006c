package launch

import (
	"fmt"
	"sync"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
	"github.com/dovetail-scheduler/dovetail/pkg/staticpool"
)

// ClaimEvents hears of NodeClaims: new and changed ones, those that are given up, and those that have ended. Safe for concurrent use.
type ClaimEvents struct {
	claims       *claimCache
	reservations *reservations.Ledger
	spending     *spending.Guard
	statics      *staticpool.State
	cleanup      *cleanup
	refusals     *provisioning.Refusals
	triggers     *provisioning.Triggers
	relief       *limits.Relief

	mu      sync.Mutex
	dying   map[string]string // the pool of each claim whose deletion ClaimGone has been told of, by the claim's name
	givenUp map[string]string // why liveness gives a claim up, by the claim's name
}

// ClaimChanged hears of a NodeClaim, new or changed. It returns at once.
func (cl *ClaimEvents) ClaimChanged(c *capacity.Claim) {
	cl.statics.Registered(c)
	cl.spending.Observe(c)
	if c.Order == nil || c.Launched || c.Deleting {
		return
	}
	cl.triggers.ClaimOrdered()
}

// GivingUp hears why a NodeClaim is about to be given up, for the events of pods that wait for its node. ClaimGone follows.
func (cl *ClaimEvents) GivingUp(claim, why string) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.givenUp[claim] = why
}

// ClaimGone hears that a NodeClaim has ended or is about to. It is called repeatedly for a claim that is being deleted.
func (cl *ClaimEvents) ClaimGone(name, why string) {
	c := cl.claims.Claim(name)
	cl.mu.Lock()
	pool, told := cl.dying[name]
	if delete(cl.dying, name); c != nil && c.Deleting {
		cl.dying[name] = c.Pool
	} else if c == nil {
		if known := cl.claims.Current(name); known != nil {
			pool = known.Pool
		}
		cl.relief.ClaimEnded(pool)
	}
	given := cl.givenUp[name]
	if c == nil {
		delete(cl.givenUp, name)
	}
	cl.mu.Unlock()
	if given != "" {
		why = given
	}
	if !told {
		cl.statics.Lost(name)
		if given != "" {
			cl.refusals.TellPods(name, "LaunchFailed", fmt.Sprintf("node %s failed to start: %s", name, why))
		}
	}
	if cl.statics.Ending(name) {
		cl.spending.Ending(name, nil)
	}
	if !told {
		cl.spending.Wasted(c)
	}
	cl.spending.Ended(name, c == nil || c.Launched || c.ProviderID != "")
	cl.cleanup.forget(name)
	cl.triggers.Recount()
	cl.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.ClaimGone(name, why, false, now) })
}
