package launch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

// Large instances cost $2 an hour and hold four pods.
func TestBudgetOfDollars(t *testing.T) {
	w, c := guarded(t, SpendingConfig{Budget: Budget{DollarsPerHour: 4.5}})
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
		w.spending.tellBudgets()
	}
	want := []string{"pool condition all nodes together cost at most $4.50 an hour (maxDollarsPerHour)",
		"pool BudgetReached no more nodes are launched for now: all nodes together cost at most $4.50 an hour (maxDollarsPerHour)"}
	if !slices.Equal(w.notes, want) {
		t.Errorf("the pool is told %q, want %q", w.notes, want)
	}
	w.notes = nil
	c.Step(reachedFor)
	w.spending.tellBudgets()
	if want := []string{"pool condition ", "pool BudgetFree no budget keeps nodes from being bought any more"}; !slices.Equal(w.notes, want) {
		t.Errorf("the pool is told %q, want %q", w.notes, want)
	}
}

// Nodes that are reserved but whose claims are not written yet count, too.
func TestBudgetCountsWhatIsNotWrittenYet(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{Budget: Budget{DollarsPerHour: 3}})
	n := func() *capacity.Plan {
		n := cheapest(w.Pools(w.InstanceTypes)[0], "new-0")
		return &capacity.Plan{Nodes: []*capacity.PlannedNode{n}, Placements: []capacity.Placement{{Class: &capacity.Class{Pod: w.pod(0)}, Pod: capacity.RefOf(w.pod(0)), Node: n.ID}}}
	}
	a, b := n(), n()
	w.parts.purchases.reserve(a, 0, buying{})
	w.parts.purchases.reserve(b, 0, buying{})
	if len(a.Nodes) != 1 || len(b.Nodes) != 0 {
		t.Errorf("%d and %d nodes bought for $2 each, of $3", len(a.Nodes), len(b.Nodes))
	}
}

func TestBudgetOfAPoolAndReplacements(t *testing.T) {
	s := newPurse(t, SpendingConfig{})
	at := func(price float64) []capacity.NodeOffer {
		return []capacity.NodeOffer{{Type: &capacity.InstanceType{}, Offer: capacity.Offer{Price: price}}}
	}
	pool := &capacity.Pool{Name: "pool", MaxDollars: 10}
	for _, tt := range []struct {
		name    string
		running float64
		urgent  bool
		bought  bool
	}{
		{"there is room", 7, false, true},
		{"there is none", 9, false, false},
		{"a node that is about to be lost is replaced", 9, true, true},
		{"but not where the bound is passed already", 11, true, false},
	} {
		spent := func() *money {
			return &money{running: map[string]float64{"pool": tt.running, "other": 100}, inFlight: map[string]float64{}}
		}
		why, _ := s.admit(1, spent).refuses(pool, at(3), nil, nil, tt.urgent, "")
		if (why == "") != tt.bought {
			t.Errorf("%s: %q", tt.name, why)
		}
	}
}

func TestBudgetOfLaunches(t *testing.T) {
	w, c := guarded(t, SpendingConfig{Budget: Budget{LaunchesPerMinute: 2}})
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

// Without a limit launches are not remembered.
func TestLaunchesAreNotRememberedForNothing(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{})
	w.submit(16)
	w.plans()
	if n := len(w.spending.launches); n != 0 || len(w.bought()) != 4 {
		t.Errorf("%d launches are remembered, %d machines", n, len(w.bought()))
	}
}

// Refused nodes count for nothing: a node that is too expensive doesn't keep a cheap one from being bought.
func TestWhatIsRefusedCountsForNothing(t *testing.T) {
	s := newPurse(t, SpendingConfig{NewImageNodes: 1, Budget: Budget{DollarsPerHour: 10}})
	offers := func(price float64) []capacity.NodeOffer {
		return []capacity.NodeOffer{{Type: &capacity.InstanceType{Image: "ami"}, Offer: capacity.Offer{Price: price}}}
	}
	a := s.admit(2, func() *money { return &money{running: map[string]float64{}, inFlight: map[string]float64{}} })
	pool := &capacity.Pool{Name: "pool", NodeClass: "class"}
	if why, _ := a.refuses(pool, offers(20), nil, nil, false, ""); why == "" {
		t.Fatal("bought beyond the budget")
	}
	if why, _ := a.refuses(pool, offers(5), nil, nil, false, ""); why != "" {
		t.Error(why)
	}
}

func TestMetricsOfMoney(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{})
	w.submit(8)
	w.plans()
	series := func(pool, state string) float64 {
		v, err := testutil.GetGaugeMetricValue(dollarsPerHour.WithLabelValues(pool, state))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	w.parts.records.countMoney()
	if got := series("pool", "running"); got != 4 {
		t.Errorf("$%.2f an hour are running, want $4", got)
	}
	w.mu.Lock()
	for _, c := range w.claims {
		c.Pool = "gone" // a deleted pool, whose nodes still run
	}
	w.mu.Unlock()
	clear(w.parts.claims.local)
	w.parts.records.countMoney()
	if a, b := series("pool", "running"), series("gone", "running"); a != 0 || b != 4 {
		t.Errorf("$%.2f and $%.2f an hour are running, want 0 and $4", a, b)
	}
	w.mu.Lock()
	clear(w.claims)
	w.mu.Unlock()
	w.parts.records.countMoney()
	if got := series("gone", "running"); got != 0 || w.spending.counted["gone"] {
		t.Errorf("$%.2f an hour are running in a pool that has gone", got)
	}
	poolmetrics.Keep(map[string]bool{"pool": true})
	w.parts.records.countMoney()
	if dollarsPerHour.DeleteLabelValues("gone", "running") || dollarsPerHour.DeleteLabelValues("gone", "in_flight") {
		t.Error("a pool that has gone still has series")
	}
	if !dollarsPerHour.DeleteLabelValues("pool", "running") {
		t.Error("a pool that is there has no series")
	}
}

// The time since when a budget is reached doesn't restart with each plan that has a cheap enough node beside one that is too expensive.
func TestSinceWhenABudgetIsReached(t *testing.T) {
	p := newPurse(t, SpendingConfig{Budget: Budget{DollarsPerHour: 10}})
	pool := &capacity.Pool{Name: "pool", NodeClass: "class"}
	offers := func(price float64) []capacity.NodeOffer {
		return []capacity.NodeOffer{{Type: &capacity.InstanceType{Name: "m", Image: "ami"}, Offer: capacity.Offer{Zone: "a", Price: price, Available: true}}}
	}
	since := "reached since " + p.clock.Now().UTC().Format(time.RFC3339)
	for range 3 {
		adm := p.admit(2, func() *money { return &money{running: map[string]float64{}, inFlight: map[string]float64{}} })
		if why, _ := adm.refuses(pool, offers(1), nil, nil, false, ""); why != "" {
			t.Fatal(why)
		}
		if why, _ := adm.refuses(pool, offers(100), nil, nil, false, ""); !strings.Contains(why, since) {
			t.Errorf("%s; want %s", why, since)
		}
		p.clock.Step(time.Minute)
	}
}
