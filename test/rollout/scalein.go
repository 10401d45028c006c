package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

const (
	// kept is the share of pods that stay, within is what the bill may be in the end, as a share of a fresh plan's, after repacking at most.
	kept, within = 0.6, 1.03
	repacking    = 45 * time.Minute
	// killEvery is how long the scheduler lives before it is killed: half of it, and then all of it each time.
	killEvery = 90 * time.Second
	// calm is for how long the bill has to be as it should.
	calm = 2 * time.Minute
)

// scaleIn compares the bill of used nodes with that of a fresh plan.
func scaleIn(ctx context.Context, s *system) error {
	all := chaos.Services(s.set.nodes)
	whole, left := chaos.Scaled(all, 1), chaos.Scaled(all, kept)
	pool := chaos.Saving("0s", "10%")
	if err := s.Create(ctx, chaos.Class("default"), pool); err != nil {
		return err
	}
	if err := s.fill(ctx, all, left); err != nil {
		return err
	}
	fresh := s.price()
	standalone.Say("a fresh plan: $%.2f/h for %d machines", fresh, len(s.EC2.Live()))
	if err := s.empty(ctx, all); err != nil {
		return err
	}
	if err := s.fill(ctx, all, whole); err != nil {
		return err
	}
	before := len(s.EC2.Live())
	standalone.Say("before: $%.2f/h for %d machines", s.price(), before)
	earlier, err := s.judge(ctx, karpv1.DisruptionReasonUnderutilized)
	if err != nil {
		return err
	}
	if err := s.resize(ctx, left); err != nil {
		return err
	}
	begun := time.Now()
	if err := s.repack(ctx, fresh); err != nil {
		return err
	}
	ratio, took := s.price()/fresh, time.Since(begun)
	if _, err := s.until(ctx, "all run, and nothing is left over", settling, func(l look) string {
		if why := l.allRun(left); why != "" {
			return why
		}
		return s.consistent(l)
	}); err != nil {
		return err
	}
	j, err := s.judge(ctx, karpv1.DisruptionReasonUnderutilized)
	if err != nil {
		return err
	}
	for _, w := range j.Wrong {
		s.wrong("%s", w)
	}
	evictions := j.Evicted - earlier.Evicted
	if evictions == 0 {
		s.wrong("nothing was evicted")
	}
	if j.Undecided > 0 {
		standalone.Say("%d evictions could not be judged", j.Undecided)
	}
	fmt.Printf("scalein: ratio %.3f evictions %d nodes %d->%d minutes %.1f\n", ratio, evictions, before, len(s.EC2.Live()), took.Minutes())
	return nil
}

// price returns what the instances cost per hour.
func (s *system) price() (sum float64) {
	for _, in := range s.EC2.Live() {
		sum += in.Price
	}
	return sum
}

// fill creates the Deployments with these numbers of pods, then starts the scheduler, so that one plan is made for all, and waits until they run.
func (s *system) fill(ctx context.Context, all map[string]*appsv1.Deployment, want map[string]int) error {
	sum := 0
	for _, app := range slices.Sorted(maps.Keys(all)) {
		d := all[app].DeepCopy()
		n := int32(want[app])
		d.Spec.Replicas = &n
		sum += want[app]
		if err := s.Create(ctx, d); err != nil {
			return err
		}
	}
	if _, err := s.until(ctx, "all pods are there", settling, func(l look) string {
		if len(l.pods) == sum {
			return ""
		}
		return fmt.Sprintf("%d of %d pods", len(l.pods), sum)
	}); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	done, err := s.until(ctx, "all run on new nodes", filling, func(l look) string {
		if why := l.allRun(want); why != "" {
			return why
		}
		return s.consistent(l)
	})
	if err == nil && !done {
		return fmt.Errorf("the cluster isn't filled")
	}
	return err
}

// run starts the scheduler, the first time or again.
func (s *system) run(ctx context.Context) error {
	if s.Scheduler == nil {
		return s.StartScheduler(ctx)
	}
	err := s.Scheduler.Restart(ctx)
	s.stopped = err != nil
	return err
}

// empty removes the Deployments, waits until there are no nodes, and stops the scheduler.
func (s *system) empty(ctx context.Context, all map[string]*appsv1.Deployment) error {
	for _, d := range all {
		if err := s.Client().Delete(ctx, d.DeepCopy()); err != nil {
			return fmt.Errorf("deleting Deployment %s: %w", d.Name, err)
		}
	}
	done, err := s.until(ctx, "all nodes are gone", filling, func(l look) string {
		if len(l.pods)+len(l.claims)+len(l.nodes)+len(s.EC2.Live()) == 0 {
			return ""
		}
		return fmt.Sprintf("%d pods, %d Nodes", len(l.pods), len(l.nodes))
	})
	if err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("the cluster isn't empty")
	}
	s.stopped = true
	s.Scheduler.Kill()
	s.Scheduler.Stop()
	return nil
}

func (s *system) resize(ctx context.Context, to map[string]int) error {
	for _, app := range slices.Sorted(maps.Keys(to)) {
		d := &appsv1.Deployment{}
		d.Namespace, d.Name = "default", app
		if err := s.patch(ctx, d, `{"spec":{"replicas":%d}}`, to[app]); err != nil {
			return err
		}
	}
	return nil
}

// repack waits until the bill has been close to that of a fresh plan for a while, and kills the scheduler on the way.
func (s *system) repack(ctx context.Context, fresh float64) error {
	kills, next := 0, time.Now().Add(killEvery/2)
	var good time.Time
	var failed error
	_, err := s.until(ctx, "the bill is close to a fresh plan's", repacking, func(l look) string {
		if kills < s.set.kills && time.Now().After(next) {
			s.Scheduler.Kill()
			if failed = s.Scheduler.Restart(ctx); failed != nil {
				return ""
			}
			kills, next = kills+1, time.Now().Add(killEvery)
			standalone.Say("killed the scheduler and started it again, %d of %d", kills, s.set.kills)
		}
		ratio := s.price() / fresh
		if ratio > within || kills < s.set.kills {
			good = time.Time{}
		} else if good.IsZero() {
			good = time.Now()
		}
		if !good.IsZero() && time.Since(good) >= calm {
			return ""
		}
		return fmt.Sprintf("$%.2f/h, %.3f of a fresh plan's", s.price(), ratio)
	})
	if failed != nil {
		return failed
	}
	return err
}
