package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

const (
	// quietFor is how long no node has to come or go until consolidation has found nothing more to do: it looks every ten seconds.
	quietFor = 25 * time.Second
	// mostOver is how much more than one plan for all pods the nodes may cost in the end. Each node that would still save something has paid
	// for its move by then, but a plan for all pods at once may choose other types.
	mostOver = 1.25
	// rollOutFrom is the least number of pods with which nodes are rolled out: the first new node is watched for two minutes.
	rollOutFrom = 100
)

// consolidate deletes the Jobs, lets used nodes be emptied, waits until nothing more is moved, and compares the bill with one plan for the same
// pods. A Job's controller creates a pod that was moved again and again later each time, up to minutes.
func (s *show) consolidate(ctx context.Context) error {
	s.act("consolidation: the Job is deleted; consolidationPolicy WhenEmptyOrUnderutilized; dovetail.sh/restart-cost: 0s, so that moves needn't pay off first")
	for _, shape := range s.shapes {
		if !shape.job {
			continue
		}
		if err := s.system.Client().Delete(ctx, shape.object(), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return fmt.Errorf("deleting %s: %w", shape.name, err)
		}
	}
	s.shapes = slices.DeleteFunc(s.shapes, func(shape shape) bool { return shape.job })
	if err := s.watch(ctx, "the Job's pods end", 3*time.Minute, s.settled); err != nil {
		return err
	}
	before := s.system.EC2.Bill().PerHour
	if err := s.patchPools(ctx, `{"metadata":{"annotations":{"dovetail.sh/restart-cost":"0s"}},"spec":{"disruption":{"consolidationPolicy":"WhenEmptyOrUnderutilized"}}}`); err != nil {
		return err
	}
	begun, launched := time.Now(), len(s.system.EC2.Instances())
	var nodes []types.UID
	since := time.Now()
	err := s.watch(ctx, "pods move, and nodes end", 10*time.Minute, func(f snapshot, live []ec2.Instance) string {
		var now []types.UID
		for _, n := range f.nodes {
			now = append(now, n.UID)
		}
		slices.Sort(now)
		if !slices.Equal(now, nodes) {
			nodes, since = now, time.Now()
		}
		if text := s.settled(f, live); text != "" {
			return text
		}
		if time.Since(since) < quietFor {
			return "nodes have changed"
		}
		return ""
	})
	if err != nil {
		return err
	}
	after := s.system.EC2.Bill().PerHour
	plan, err := s.planAll(ctx, "consolidated")
	if err != nil {
		return err
	}
	moved := s.audience.waits(begun)
	s.say("\n  $%.3f/h before, $%.3f/h after; one plan for the same pods: $%.3f/h", before, after, plan.TotalPerHour)
	s.say("  %d pods were moved, and waited for their next node p50 %s, p99 %s: it was Ready before they were evicted; %d nodes were launched for that",
		len(moved), round(quantile(moved, 0.5)), round(quantile(moved, 0.99)), len(s.system.EC2.Instances())-launched)
	switch {
	case after > before:
		s.fault("consolidation has made the nodes dearer: $%.3f/h instead of $%.3f/h", after, before)
	case after > mostOver*plan.TotalPerHour:
		s.fault("after consolidation the nodes cost $%.3f/h, and one plan for the same pods $%.3f/h", after, plan.TotalPerHour)
	}
	s.check(s.audience.now(), s.system.EC2.Live())
	return nil
}

// rollOut changes the tags of the node class, and waits until no node is older than that.
func (s *show) rollOut(ctx context.Context) error {
	if s.set.pods < rollOutFrom {
		return nil
	}
	old := map[types.UID]bool{}
	for _, n := range s.audience.now().nodes {
		old[n.UID] = true
	}
	s.act("a roll-out: the EC2NodeClass gets other tags, so all %d nodes are Drifted; the first new one is watched for two minutes", len(old))
	begun := time.Now()
	for _, o := range s.offered {
		class, ok := o.(*ec2nc.EC2NodeClass)
		if !ok {
			continue
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"tags":{"release":"2"}}}`))
		if err := s.system.Client().Patch(ctx, &ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: class.Name}}, patch); err != nil {
			return fmt.Errorf("changing the tags of %s: %w", class.Name, err)
		}
	}
	if err := s.watch(ctx, "all nodes are replaced", 15*time.Minute, func(f snapshot, live []ec2.Instance) string {
		left := 0
		for _, n := range f.nodes {
			if old[n.UID] {
				left++
			}
		}
		if left > 0 {
			return fmt.Sprintf("%d nodes are older than the change", left)
		}
		return s.settled(f, live)
	}); err != nil {
		return err
	}
	moved := s.audience.waits(begun)
	s.say("\n  %d pods were moved, and waited for their next node p50 %s, p99 %s", len(moved), round(quantile(moved, 0.5)), round(quantile(moved, 0.99)))
	s.check(s.audience.now(), s.system.EC2.Live())
	return nil
}

// patchPools applies a merge patch to the node pools.
func (s *show) patchPools(ctx context.Context, patch string) error {
	for _, o := range s.offered {
		pool, ok := o.(*karpv1.NodePool)
		if !ok {
			continue
		}
		if err := s.system.Client().Patch(ctx, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool.Name}}, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return fmt.Errorf("changing node pool %s: %w", pool.Name, err)
		}
	}
	return nil
}
