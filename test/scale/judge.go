package main

import (
	"context"
	"fmt"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/load"
)

// judge notes pods of the load that are not bound in the end. Those of the burst are bound, or the measurement would have failed.
func (s *system) judge(ctx context.Context, scheduler *cluster.SchedulerProcess, seen *load.Bindings, at *point, created int) {
	ctx, cancel := context.WithTimeout(ctx, s.set.patience) // on a slow computer many pods of the load wait behind the burst
	defer cancel()
	_, err := seen.Until(ctx, forLoad, created, func() error { return s.failed(scheduler) })
	_, bound, lost := seen.Count(forLoad)
	if why := missing(bound, lost, created); why != "" {
		at.wrong("%s (%v)", why, err)
	}
}

// missing describes pods that were lost, or that wait although the load has ended; "" if there are none.
func missing(bound, lost, created int) string {
	switch {
	case lost > 0:
		return fmt.Sprintf("%d of %d pods ended without having been bound", lost, created)
	case bound < created:
		return fmt.Sprintf("%d of %d pods are bound in the end", bound, created)
	}
	return ""
}

// needless describes instances that were launched for nothing; "" if they are few: launches fail, and bindings don't always follow the plan.
func needless(machines, used int) string {
	if machines > used+max(2, used/10) {
		return fmt.Sprintf("%d instances were launched for pods that are on %d nodes", machines, used)
	}
	return ""
}
