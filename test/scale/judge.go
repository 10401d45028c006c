package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/load"
)

// judge notes pods of the load that are not bound in the end. Those of the burst are bound, or the measurement would have failed.
func (s *system) judge(ctx context.Context, scheduler *cluster.SchedulerProcess, seen *load.Bindings, at *point, created int) {
	ctx, cancel := context.WithTimeout(ctx, s.set.patience) // on a slow computer many pods of the load wait behind the burst
	defer cancel()
	if err := at.settle(ctx, seen, created, func() error { return s.failed(scheduler) }); err != nil {
		at.wrong("%v", err)
	}
}

// settle waits until the pods of the load are bound, and takes the times of those that came before the burst and during it only then: the ones
// that wait longest aren't bound yet when that time ends. It returns an error if some are never bound.
func (p *point) settle(ctx context.Context, seen *load.Bindings, created int, failed func() error) (err error) {
	_, _, lost := seen.Count(forLoad)
	if n := created - lost; n > 0 {
		_, err = seen.Until(ctx, forLoad, n, failed)
	}
	p.steady, p.bursting = seen.Between(forLoad, p.before.from, p.before.to), seen.Between(forLoad, p.during.from, p.during.to)
	_, bound, lost := seen.Count(forLoad)
	if why := missing(bound, lost, created); why != "" {
		return errors.Join(errors.New(why), err)
	}
	return nil
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
