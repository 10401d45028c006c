package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// within makes the pools of a world share a limit.
func (w *world) within(limits capacity.Resources) *world {
	w.used = karpenter.NewUsage(limits)
	return w
}

// claimIn returns a claim that counts as so many CPUs.
func claimIn(pool, name string, cpu int64) *capacity.Claim {
	return testClaim(name, func(c *capacity.Claim) {
		c.Pool, c.LaunchBatch.Pool, c.Requests, c.Largest = pool, pool, nil, capacity.Resources{"cpu": cpu}
		c.Slots, c.LaunchBatch.Claims = nil, nil
	})
}

func TestReserveWithinTheLimitOfAllPools(t *testing.T) {
	api := newFakeAPI(testClass("default"), testPool("a"), testPool("b", limited(karpv1.Limits{"cpu": resource.MustParse("3")})))
	w := newWorld(t, api).within(capacity.Resources{"cpu": 10_000}).ready()
	for i, err := range w.Reserve(claimIn("a", "a-1", 4000), claimIn("b", "b-1", 2000), claimIn("a", "a-2", 5000), claimIn("b", "b-2", 2000), claimIn("a", "a-3", 4000)) {
		want := map[int]string{
			2: "NodePool a: over the limit of all pools: they use cpu 6 of 10 (limits of ProvisionArgs), up to 5 more needed",
			3: "NodePool b: over the pool's limit: limit of cpu 3 reached: 1 left, up to 2 needed",
		}[i]
		if got := fmt.Sprint(err); got != want && (err != nil || want != "") {
			t.Errorf("claim %d: %s, want %q", i, got, want)
		}
		if errors.Is(err, capacity.ErrOverTotal) != (i == 2) || errors.Is(err, capacity.ErrOverLimit) != (i == 3) {
			t.Errorf("claim %d: %v is another kind of error", i, err)
		}
	}
	want := &capacity.Total{Limits: capacity.Resources{"cpu": 10_000}, Used: capacity.Resources{"cpu": 10_000}}
	for _, p := range w.Pools(noTypes) {
		if diff := cmp.Diff(want, p.Total); diff != "" {
			t.Errorf("pool %s (-want +got):\n%s", p.Name, diff)
		}
	}
	// What has no reservation is refused by the write, too.
	if _, err := w.Create(w.ctx, claimIn("a", "a-4", 1)); !errors.Is(err, capacity.ErrOverTotal) {
		t.Errorf("a write above the limit: %v", err)
	}
	w.Release("a-3")
	for _, c := range []*capacity.Claim{claimIn("a", "a-1", 4000), claimIn("b", "b-1", 2000)} {
		if _, err := w.Create(w.ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	// EC2 has chosen a smaller type: the rest is free for another pool.
	if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: "a-1"}, testInstance, nil, capacity.Resources{"cpu": 1000}, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Reserve(claimIn("a", "a-5", 7000))[0]; err != nil {
		t.Errorf("7 of 7 CPUs: %v", err)
	}
	// A pool that is gone still has nodes, and the next process counts them before it launches anything.
	if err := w.Live().Delete(w.ctx, testPool("b")); err != nil {
		t.Fatal(err)
	}
	next := newWorld(t, api).within(capacity.Resources{"cpu": 10_000}).ready()
	next.eventually("claims are read", func() bool { return len(next.Claims()) == 2 })
	if got := next.Pools(noTypes)[0].Total.Used["cpu"]; got != 3000 {
		t.Errorf("after a restart %d are used, want 3000", got)
	}
	for i, err := range next.Reserve(claimIn("a", "a-6", 8000), claimIn("a", "a-7", 7000)) {
		if (err == nil) != (i == 1) {
			t.Errorf("after a restart, claim %d: %v", i, err)
		}
	}
}

// Claims of another Dovetail don't count.
func TestTheLimitOfAllPoolsIsOfThisDovetail(t *testing.T) {
	nc := testNodeClaim(t)
	nc.Labels[objects.LabelManagedBy] = "another"
	w := newWorld(t, newFakeAPI(testClass("default"), testPool("default"), nc)).within(capacity.Resources{capacity.ResourceNodes: 1}).ready()
	if err := w.Reserve(claimIn("default", "default-1", 1000))[0]; err != nil {
		t.Error(err)
	}
	if err := w.Reserve(claimIn("default", "default-2", 1000))[0]; !errors.Is(err, capacity.ErrOverTotal) {
		t.Errorf("a second node: %v", err)
	}
}

// Of static pools that use up the limit of nodes together, one node at a time can be replaced.
func TestReserveASpareWithinTheLimitOfAllPools(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"), testPool("a"), testPool("b"))).within(capacity.Resources{capacity.ResourceNodes: 2, "cpu": 10_000}).ready()
	spare := func(pool, name string, cpu int64) *capacity.Claim {
		c := claimIn(pool, name, cpu)
		c.Spare = true
		return c
	}
	for i, err := range w.Reserve(claimIn("a", "a-1", 1000), claimIn("b", "b-1", 1000), claimIn("a", "a-2", 1000), spare("b", "large", 9000), spare("a", "a-3", 1000), spare("b", "b-2", 1000)) {
		if want := i < 2 || i == 4; (err == nil) != want {
			t.Errorf("claim %d: %v", i, err)
		}
	}
}

// Without the setting pools have no limit together.
func TestNoLimitOfAllPools(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"), testPool("default"))).ready()
	if got := w.Pools(noTypes)[0].Total; got != nil {
		t.Errorf("%v", got)
	}
}

// Goroutines that reserve, release and write in several pools at the same time never have more together than the limit.
func TestReservationsThatRaceKeepTheLimitOfAllPools(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"), testPool("a"), testPool("b"))).within(capacity.Resources{"cpu": 20_000}).ready()
	var wg sync.WaitGroup
	for worker := range 6 {
		pool := []string{"a", "b"}[worker%2]
		wg.Go(func() {
			for i := range 20 {
				c := claimIn(pool, fmt.Sprintf("%s-%d-%d", pool, worker, i), int64(1000*(1+i%3)))
				if worker < 4 && w.Reserve(c)[0] != nil {
					continue
				}
				if i%4 == 0 && worker < 4 {
					w.Release(c.Name)
					continue
				}
				if _, err := w.Create(w.ctx, c); err != nil && !errors.Is(err, capacity.ErrOverTotal) {
					t.Errorf("creating %s: %v", c.Name, err)
				}
				sum := int64(0)
				for _, c := range w.Claims() {
					sum += c.Takes()["cpu"]
				}
				if sum > 20_000 {
					t.Errorf("%d is used of 20000", sum)
				}
			}
		})
	}
	wg.Wait()
	if got := w.Pools(noTypes)[0].Total.Used["cpu"]; got > 20_000 || got <= 17_000 {
		t.Errorf("in the end %d is used of 20000, with demand for more", got)
	}
	if names := w.claims.GetStore().ListKeys(); !strings.Contains(strings.Join(names, " "), "a-") || !strings.Contains(strings.Join(names, " "), "b-") {
		t.Errorf("both pools should have claims: %v", names)
	}
}
