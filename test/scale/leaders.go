package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// leaderChange is what it took until another scheduler bound pods.
type leaderChange struct {
	how string
	// first and all are how long after the end of the old leader the first pod was bound, and the last of those that had come by then.
	first, all time.Duration
	// cpu is what the new leader used meanwhile; standby and leading what memory it had before and after.
	cpu              time.Duration
	standby, leading float64
}

// changeLeaders ends a leader while pods come, once in order and once as a crash would, when a second scheduler is ready to take its place.
func (s *system) changeLeaders(ctx context.Context, p *part) (out []leaderChange, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen, err := s.watch(watching)
	if err != nil {
		return nil, err
	}
	leader, err := s.schedule(ctx, process{rival: true})
	if err != nil {
		return nil, err
	}
	for _, how := range []string{"stopped", "killed"} {
		standby, err := s.schedule(ctx, process{rival: true})
		if err != nil {
			return out, err
		}
		loading := s.load(ctx, fmt.Sprintf("after-%s", how), p.perSec, seen)
		change, err := s.change(ctx, how, leader, standby, seen)
		if err := loading.end(); err != nil {
			return out, err
		}
		if err != nil {
			return out, fmt.Errorf("the leader was %s: %w", how, errors.Join(err, standby.Failed()))
		}
		out = append(out, change)
		sweeping, cancel := s.whileRunning(ctx, standby)
		err = load.Sweep(sweeping, s.Sandbox, s.kube, atOnce, s.nodes)
		cancel()
		if err != nil {
			return out, errors.Join(err, standby.Failed())
		}
		leader = standby
	}
	return out, s.end(ctx, leader)
}

// change ends the leader, and waits until the standby has bound the pods that have come meanwhile.
func (s *system) change(ctx context.Context, how string, leader, standby *cluster.SchedulerProcess, seen *load.Bindings) (c leaderChange, err error) {
	ctx, cancel := s.whileRunning(ctx, standby)
	defer cancel()
	c.how = how
	if err := s.pass(ctx, standby, seen, s.set.life); err != nil {
		return c, err
	}
	was, err := standby.Usage()
	if err != nil {
		return c, err
	}
	begun := time.Now()
	if how == "killed" {
		leader.Kill()
	} else {
		leader.Stop()
	}
	first, err := firstSeen(ctx, seen, time.Now(), standby)
	if err != nil {
		return c, err
	}
	have, _, _ := seen.Count(forLoad)
	last, err := seen.Until(ctx, forLoad, have, standby.Failed)
	if err != nil {
		return c, err
	}
	is, err := standby.Usage()
	if err != nil {
		return c, err
	}
	c.first, c.all, c.cpu, c.standby, c.leading = first.Sub(begun), last.Sub(begun), is.CPU-was.CPU, float64(was.Resident), float64(is.Resident)
	standalone.Say("the leader was %s: the first pod was bound after %s, all that waited after %s", how, c.first.Round(10*time.Millisecond), c.all.Round(10*time.Millisecond))
	return c, nil
}

// firstSeen returns when the first of the pods was bound that came since a time: only the new leader can have done that.
func firstSeen(ctx context.Context, seen *load.Bindings, since time.Time, standby *cluster.SchedulerProcess) (time.Time, error) {
	for {
		if first := firstBound(seen.Between(forLoad, since, time.Now())); !first.IsZero() {
			return first, nil
		}
		if err := standby.Failed(); err != nil {
			return time.Time{}, err
		}
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// firstBound returns when the first of the pods was bound, or zero.
func firstBound(pods []load.Binding) (first time.Time) {
	for _, p := range pods {
		if !p.Bound.IsZero() && (first.IsZero() || p.Bound.Before(first)) {
			first = p.Bound
		}
	}
	return first
}
