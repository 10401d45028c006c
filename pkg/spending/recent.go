package spending

import (
	"maps"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

const (
	// unfulfilledFor is how long no capacity is launched ahead for a workload whose anticipated pods have not come.
	unfulfilledFor = time.Hour
	// movedFor is how long it is remembered that a workload's pods have come or gone: longer than it takes from the purchase of an instance until
	// the scheduler tries to bind its pods there.
	movedFor = time.Hour
)

// recent is what has happened of late that may explain why pods don't use the instances that were bought for them.
type recent struct {
	// moved is when pods of a workload were last bound or deleted.
	moved map[guard.Workload]time.Time
	// unfulfilled is when a machine was last given back that was bought for nothing but anticipated pods of a workload.
	unfulfilled map[guard.Workload]time.Time
	// nodeGone is when a Node last left the cluster, perhaps with its topology domain.
	nodeGone time.Time
	expired  time.Time // when expire was called last
}

// movedSince reports whether pods of one of the workloads have come or gone since then.
func (r *recent) movedSince(at time.Time, workloads []guard.Workload) bool {
	return slices.ContainsFunc(workloads, func(w guard.Workload) bool { return r.moved[w].After(at) })
}

// expire forgets what no longer matters.
func (r *recent) expire(now time.Time) {
	r.expired = now
	maps.DeleteFunc(r.moved, func(_ guard.Workload, at time.Time) bool { return now.Sub(at) >= movedFor })
	maps.DeleteFunc(r.unfulfilled, func(_ guard.Workload, at time.Time) bool { return now.Sub(at) >= unfulfilledFor })
}
