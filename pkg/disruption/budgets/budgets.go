// Package budgets reads the disruption budgets of NodePools.
package budgets

import (
	"math"
	"slices"

	"github.com/robfig/cron/v3"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Allowed returns how many of a pool's nodes may be disrupted at a time for a reason: the minimum over the active budgets for this reason.
// It fails closed: if the schedule or number of any budget can't be parsed, nothing is allowed, whatever the budget is for.
func Allowed(all []karpv1.Budget, now clock.Clock, total int, reason karpv1.DisruptionReason) int {
	least := Unlimited
	for i := range all {
		b := &all[i]
		if b.Schedule != nil && never(*b.Schedule, now) {
			continue // Karpenter's arithmetic would take it as always active
		}
		n, err := b.GetAllowedDisruptions(now, total)
		if err != nil {
			return 0
		}
		if b.Reasons == nil || slices.Contains(b.Reasons, reason) {
			least = min(least, n)
		}
	}
	return least
}

// Any reports whether nodes of a pool may be disrupted for a reason now, if none are being disrupted.
func Any(all []karpv1.Budget, now clock.Clock, reason karpv1.DisruptionReason) bool {
	return Allowed(all, now, mostNodes, reason) > 0
}

// mostNodes stands for the number of a pool's nodes. It is so large that only a budget of 0 nodes or 0 % allows none.
const mostNodes = 1 << 20

// never reports whether a schedule names no time at all, like the 31st of February.
func never(schedule string, now clock.Clock) bool {
	s, err := cron.ParseStandard("TZ=UTC " + schedule)
	return err == nil && s.Next(now.Now()).IsZero()
}

// Unlimited is what Allowed returns if no budget limits the reason now.
const Unlimited = math.MaxInt32
