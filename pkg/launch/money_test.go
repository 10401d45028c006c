package launch

import (
	"slices"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// Large instances cost $2 an hour and hold four pods.
func TestBudgetOfDollars(t *testing.T) {
	w, c := guarded(t, spending.Config{Budget: spending.Budget{DollarsPerHour: 4.5}})
	w.submit(16)
	w.plans()
	if got := w.bought(); len(got) != 2 {
		t.Fatalf("bought %d, want 2", len(got))
	}
	if !w.says("FailedProvisioning", "nodes cost up to $4.00 per hour", "the limit is $4.50 (maxDollarsPerHour)") {
		t.Errorf("told %q", w.notes)
	}
	w.notes = nil
	for range 3 {
		w.parts.demand.Verdicts.Tend(t.Context())
	}
	want := []string{"pool condition all nodes together cost at most $4.50 an hour (maxDollarsPerHour)",
		"pool BudgetReached no more nodes are launched for now: all nodes together cost at most $4.50 an hour (maxDollarsPerHour)"}
	if !slices.Equal(w.notes, want) {
		t.Errorf("the pool is told %q, want %q", w.notes, want)
	}
	w.notes = nil
	c.Step(10 * time.Minute)
	w.parts.demand.Verdicts.Tend(t.Context())
	if want := []string{"pool condition ", "pool BudgetFree no budget keeps nodes from being bought any more"}; !slices.Equal(w.notes, want) {
		t.Errorf("the pool is told %q, want %q", w.notes, want)
	}
}

// Nodes that are reserved but whose claims are not written yet count, too.
func TestBudgetCountsWhatIsNotWrittenYet(t *testing.T) {
	w, _ := guarded(t, spending.Config{Budget: spending.Budget{DollarsPerHour: 3}})
	n := func() *capacity.Plan {
		n := cheapest(w.Pools(w.InstanceTypes)[0], "new-0")
		return &capacity.Plan{Nodes: []*capacity.PlannedNode{n}, Placements: []capacity.Placement{{Class: &capacity.Class{Pod: w.pod(0)}, Pod: capacity.RefOf(w.pod(0)), Node: n.ID}}}
	}
	a, b := n(), n()
	w.parts.purchases.reserve(&provisioning.Proposal{Plan: a}, nil)
	w.parts.purchases.reserve(&provisioning.Proposal{Plan: b}, nil)
	if len(a.Nodes) != 1 || len(b.Nodes) != 0 {
		t.Errorf("%d and %d nodes bought for $2 each, of $3", len(a.Nodes), len(b.Nodes))
	}
}

func TestBudgetOfLaunches(t *testing.T) {
	w, c := guarded(t, spending.Config{Budget: spending.Budget{LaunchesPerMinute: 2}})
	w.submit(16)
	w.plans()
	if got := w.bought(); len(got) != 2 {
		t.Fatalf("bought %d, want 2", len(got))
	}
	w.leads() // the next leader counts them
	c.Step(30 * time.Second)
	w.plans()
	if got := w.bought(); len(got) != 2 {
		t.Errorf("bought %d within the minute, want 2", len(got))
	}
	if !w.says("the limit is 2 (maxLaunchesPerMinute)") {
		t.Errorf("told %q", w.notes)
	}
}

func TestMetricsOfMoney(t *testing.T) {
	w, _ := guarded(t, spending.Config{})
	w.submit(8)
	w.plans()
	const name = "dovetail_nodes_dollars_per_hour"
	series := func(pool, state string) float64 {
		v, _ := metric(t, name, pool, state)
		return v
	}
	there := func(pool, state string) bool {
		_, yes := metric(t, name, pool, state)
		return yes
	}
	w.parts.writer.CountCost()
	if got := series("pool", "running"); got != 4 {
		t.Errorf("$%.2f an hour are running, want $4", got)
	}
	w.mu.Lock()
	for _, c := range w.claims {
		c.Pool = "gone" // a deleted pool, whose nodes still run
	}
	w.mu.Unlock()
	clear(w.parts.claims.local)
	w.parts.writer.CountCost()
	if a, b := series("pool", "running"), series("gone", "running"); a != 0 || b != 4 {
		t.Errorf("$%.2f and $%.2f an hour are running, want 0 and $4", a, b)
	}
	w.mu.Lock()
	clear(w.claims)
	w.mu.Unlock()
	w.parts.writer.CountCost()
	if got := series("gone", "running"); got != 0 {
		t.Errorf("$%.2f an hour are running in a pool that has gone", got)
	}
	poolmetrics.Keep(map[string]bool{"pool": true})
	w.parts.writer.CountCost()
	if there("gone", "running") || there("gone", "in_flight") {
		t.Error("a pool that has gone still has series")
	}
	if !there("pool", "running") {
		t.Error("a pool that is there has no series")
	}
}
