// Package rebalance reads what pools and NodeClaims say about EC2's recommendations to leave spot capacity, and about nodes that were bought on
// demand for want of spot capacity. It decides nothing: pkg/capacity/consolidation does.
package rebalance

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"time"

	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/budgets"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// Replace is the value of the annotation by which a pool has its nodes replaced.
	Replace = "replace"
	// restFor is how long a node is used at least before it is replaced for a recommendation: EC2 may give one right after the launch.
	restFor = 10 * time.Minute
	// countsFor is how long a recommendation counts. If the node couldn't be replaced for so long, it is a node like any other again.
	countsFor = 24 * time.Hour
	// awayFor is for how long a node that was bought on demand has to be there, and this process to have watched capacity, before it may return to
	// spot capacity; and how long a node waits at least after a return that failed.
	awayFor = 30 * time.Minute
	// most is the share of a pool's nodes that are replaced at a time if no budget says how many: as in Karpenter's default budget.
	most = 0.1
)

// Text returns what a pool says about rebalance recommendations, on itself or in its template; empty: nothing.
func Text(pool *karpv1.NodePool) string {
	return cmp.Or(pool.Annotations[objects.AnnotationRebalance], pool.Spec.Template.Annotations[objects.AnnotationRebalance])
}

// Asked reports whether a pool asks for nodes to be replaced whose spot capacity EC2 recommends to leave. The error says what is wrong with the
// annotation, which is ignored then.
func Asked(pool *karpv1.NodePool) (bool, error) {
	switch Text(pool) {
	case Replace:
		return true, nil
	case "", "off":
		return false, nil
	}
	return false, errors.New("it must be " + strconv.Quote(Replace) + " or \"off\"")
}

// Recommended returns since when EC2 recommends to leave the capacity of a claim's instance, as far as that is recorded and counts.
func Recommended(claim *karpv1.NodeClaim, now time.Time) (since time.Time, ok bool) {
	since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationRebalanceRecommended])
	return since, err == nil && now.Sub(since) < countsFor
}

// Due returns since when a spot node is to be replaced because EC2 recommends to leave its capacity. A node younger than restFor isn't replaced yet.
func Due(claim *karpv1.NodeClaim, now time.Time) (since time.Time, yes bool) {
	since, ok := Recommended(claim, now)
	return since, ok && claim.Labels[karpv1.CapacityTypeLabelKey] == karpv1.CapacityTypeSpot && now.Sub(claim.CreationTimestamp.Time) >= restFor
}

// Allowed returns how many of a pool's nodes may be replaced at a time: as many as its budgets without reasons say (those of Karpenter's API can't
// name this one), else a tenth, rounded up.
func Allowed(pool *karpv1.NodePool, now clock.Clock, total int) int {
	n := budgets.Allowed(pool.Spec.Disruption.Budgets, now, total, karpv1.DisruptionReason(consolidation.RebalanceRecommended))
	if n == budgets.Unlimited {
		n = int(math.Ceil(most * float64(total)))
	}
	return n
}

// ReturnsAt returns from when on a claim's node may be replaced by spot capacity because it was bought on demand for want of it; zero: it wasn't.
// watched is since when this process knows which capacity is available.
func ReturnsAt(claim *karpv1.NodeClaim, watched time.Time) time.Time {
	if claim.Annotations[objects.AnnotationForWantOfSpot] != "true" || claim.Labels[karpv1.CapacityTypeLabelKey] != capacity.CapacityTypeOnDemand {
		return time.Time{}
	}
	since := claim.CreationTimestamp.Time
	if watched.After(since) {
		since = watched
	}
	return since.Add(awayFor)
}

// Rest returns how long a node waits at least after a move of it has failed; 0: no longer than other nodes.
func Rest(claim *karpv1.NodeClaim) time.Duration {
	if ReturnsAt(claim, time.Time{}).IsZero() {
		return 0
	}
	return awayFor
}
