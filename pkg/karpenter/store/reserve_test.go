package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
)

func limited(limits karpv1.Limits) func(*karpv1.NodePool) {
	return func(np *karpv1.NodePool) { np.Spec.Limits = limits }
}

func TestReserveAndRelease(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"), testPool("default", limited(karpv1.Limits{"cpu": resource.MustParse("10"), "nodes": resource.MustParse("9")})))).ready()
	used := func() capacity.Resources { return w.Pools(noTypes)[0].Used }
	claim := func(name string, cpu int64) *capacity.Claim {
		return testClaim(name, func(c *capacity.Claim) { c.Requests, c.Largest = nil, capacity.Resources{"cpu": cpu} })
	}
	for i, err := range w.Reserve(claim("a", 4000), claim("b", 4000), claim("c", 4000), claim("d", 2000)) {
		if over := i == 2; errors.Is(err, capacity.ErrOverLimit) != over || (err != nil) != over {
			t.Errorf("claim %d: %v", i, err)
		} else if over && err.Error() != "NodePool default: over the pool's limit: limit of cpu 10 reached: 2 left, up to 4 needed" {
			t.Errorf("%v", err)
		}
	}
	if err := w.Reserve(testClaim("x", func(c *capacity.Claim) { c.Pool = "nobody" }))[0]; !errors.Is(err, ErrPoolUnusable) {
		t.Errorf("a pool that is not there: %v", err)
	}
	if diff := cmp.Diff(capacity.Resources{"cpu": 10000, "nodes": 3}, used()); diff != "" {
		t.Errorf("reserved (-want +got):\n%s", diff)
	}
	// One is written, one is released; a claim without a reservation gets what is left.
	if _, err := w.Create(w.ctx, claim("a", 4000)); err != nil {
		t.Fatal(err)
	}
	w.Release("a")
	w.Release("b")
	w.Release("never heard of")
	if _, err := w.Create(w.ctx, claim("e", 5000)); !errors.Is(err, capacity.ErrOverLimit) {
		t.Errorf("5 of 4 CPUs: %v", err)
	}
	if _, err := w.Create(w.ctx, claim("e", 3000)); err != nil {
		t.Errorf("3 of 4 CPUs: %v", err)
	}
	w.eventually("both are seen by the watch", func() bool { return len(w.claims.GetStore().ListKeys()) == 2 })
	if diff := cmp.Diff(capacity.Resources{"cpu": 9000, "nodes": 3}, used()); diff != "" {
		t.Errorf("written and reserved (-want +got):\n%s", diff)
	}
	// It was launched as a smaller type: the rest is free again.
	if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: "a"}, testInstance, nil, capacity.Resources{"cpu": 2000}, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(capacity.Resources{"cpu": 7000, "nodes": 3}, used()); diff != "" {
		t.Errorf("launched (-want +got):\n%s", diff)
	}
	// A failed write releases what it has reserved itself, and keeps what was reserved before.
	other := claim("e", 1000)
	other.LaunchBatch.Token = "another intent"
	if _, err := w.Create(w.ctx, other); err == nil {
		t.Error("a name that is taken by another intent was written again")
	}
	if diff := cmp.Diff(capacity.Resources{"cpu": 7000, "nodes": 3}, used()); diff != "" {
		t.Errorf("after a failed write (-want +got):\n%s", diff)
	}
}

// TestPlansThatRaceKeepTheLimits runs several planners that read the pools, plan, reserve and write at the same time, each as if it
// were alone. Together they must not exceed a limit at any moment.
func TestPlansThatRaceKeepTheLimits(t *testing.T) {
	small := &capacity.InstanceType{Name: "m5.large", Labels: map[string]string{corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelArchStable: "amd64"},
		Capacity: capacity.Resources{"cpu": 2000, "memory": 8 << 30, "pods": 29}, Allocatable: capacity.Resources{"cpu": 1900, "memory": 7 << 30, "pods": 29},
		Offers: []capacity.Offer{{Zone: "us-west-2a", CapacityType: "spot", Price: 0.03, Available: true}}}
	large := *small
	large.Name, large.Labels = "m5.xlarge", map[string]string{corev1.LabelInstanceTypeStable: "m5.xlarge", corev1.LabelArchStable: "amd64"}
	large.Capacity, large.Allocatable = capacity.Resources{"cpu": 4000, "memory": 16 << 30, "pods": 58}, capacity.Resources{"cpu": 3900, "memory": 15 << 30, "pods": 58}
	large.Offers = []capacity.Offer{{Zone: "us-west-2a", CapacityType: "spot", Price: 0.055, Available: true}}
	kinds := []*capacity.InstanceType{small, &large}

	limit := capacity.Resources{"cpu": 41_000, capacity.ResourceNodes: 17}
	pool := testPool("default", limited(karpv1.Limits{"cpu": resource.MustParse("41"), "nodes": resource.MustParse("17")}), func(np *karpv1.NodePool) {
		np.Spec.Template.Spec.Requirements, np.Spec.Template.Spec.Taints = []karpv1.NodeSelectorRequirementWithMinValues{}, nil
	})
	w := newWorld(t, newFakeAPI(testClass("default"), pool)).ready()
	within := func() {
		sum := capacity.Resources{}
		for _, c := range w.Claims() {
			sum.Add(c.Takes(), 1)
		}
		for name, most := range limit {
			if sum[name] > most {
				t.Errorf("%d of %s is taken, the limit is %d", sum[name], name, most)
			}
		}
	}
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			for round := range 4 {
				class := &capacity.Class{Key: capacity.ClassKey(fmt.Sprint(worker)), Requests: capacity.Resources{"cpu": 1500, "pods": 1}, Pod: &corev1.Pod{}}
				demand := capacity.Demand{Class: class}
				for i := range 5 {
					demand.Pods = append(demand.Pods, capacity.PodRef{UID: types.UID(fmt.Sprintf("%d-%d-%d", worker, round, i))})
				}
				pools := w.Pools(func(string) ([]*capacity.InstanceType, error) { return kinds, nil })
				plan := planner.Decide(&capacity.View{Pools: pools, Demand: []capacity.Demand{demand}}, capacity.Options{})
				for i, n := range plan.Nodes {
					c := testClaim(fmt.Sprintf("default-%d-%d-%d", worker, round, i), func(c *capacity.Claim) {
						c.Requests, c.Largest, c.Slots, c.LaunchBatch.Claims = n.Requests, n.Largest, nil, nil
					})
					if worker%2 == 0 { // half of the planners reserve first, the others reserve by the write
						if w.Reserve(c)[0] != nil {
							continue
						}
					}
					if _, err := w.Create(w.ctx, c); err != nil {
						if !errors.Is(err, capacity.ErrOverLimit) {
							t.Errorf("creating %s: %v", c.Name, err)
						}
						w.Release(c.Name)
						continue
					}
					within()
					if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: c.Name}, testInstance, nil, n.Offers[0].Type.Capacity, n.Offers[0].Type.Allocatable); err != nil {
						t.Errorf("launching %s: %v", c.Name, err)
					}
				}
			}
		})
	}
	wg.Wait()
	within()
	used := w.Pools(noTypes)[0].Used
	if used["cpu"] <= limit["cpu"]-4000 && used[capacity.ResourceNodes] < limit[capacity.ResourceNodes] {
		t.Errorf("only %v of %v is used, with demand for more", used, limit)
	}
}

// A node that takes the place of another may exceed the limit of nodes by one, and no other limit.
func TestReserveASpare(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"), testPool("default", limited(karpv1.Limits{"cpu": resource.MustParse("10"), "nodes": resource.MustParse("1")})))).ready()
	spare := func(name string, cpu int64) *capacity.Claim {
		return testClaim(name, func(c *capacity.Claim) {
			c.Requests, c.Largest, c.Spare = nil, capacity.Resources{"cpu": cpu}, true
		})
	}
	if err := w.Reserve(testClaim("a"))[0]; err != nil {
		t.Fatal(err)
	}
	for i, err := range w.Reserve(spare("large", 20000), spare("b", 1000), spare("c", 1000)) {
		if (err == nil) != (i == 1) {
			t.Errorf("claim %d: %v", i, err)
		}
	}
}
