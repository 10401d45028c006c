package spending

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestBudgetOfAPoolAndReplacements(t *testing.T) {
	s := newPurse(t, Config{})
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
		why, _ := s.spent(1, &Cost{Running: map[string]float64{"pool": tt.running, "other": 100}, InFlight: map[string]float64{}}).Refuses(pool, at(3), nil, nil, tt.urgent, "")
		if (why == "") != tt.bought {
			t.Errorf("%s: %q", tt.name, why)
		}
	}
}

// Refused nodes count for nothing: a node that is too expensive doesn't keep a cheap one from being bought.
func TestWhatIsRefusedCountsForNothing(t *testing.T) {
	s := newPurse(t, Config{NewImageNodes: 1, Budget: Budget{DollarsPerHour: 10}})
	offers := func(price float64) []capacity.NodeOffer {
		return []capacity.NodeOffer{{Type: &capacity.InstanceType{Image: "ami"}, Offer: capacity.Offer{Price: price}}}
	}
	a := s.spent(2, &Cost{Running: map[string]float64{}, InFlight: map[string]float64{}})
	pool := &capacity.Pool{Name: "pool", NodeClass: "class"}
	if why, _ := a.Refuses(pool, offers(20), nil, nil, false, ""); why == "" {
		t.Fatal("bought beyond the budget")
	}
	if why, _ := a.Refuses(pool, offers(5), nil, nil, false, ""); why != "" {
		t.Error(why)
	}
}

// The time since when a budget is reached doesn't restart with each plan that has a cheap enough node beside one that is too expensive.
func TestSinceWhenABudgetIsReached(t *testing.T) {
	p := newPurse(t, Config{Budget: Budget{DollarsPerHour: 10}})
	pool := &capacity.Pool{Name: "pool", NodeClass: "class"}
	offers := func(price float64) []capacity.NodeOffer {
		return []capacity.NodeOffer{{Type: &capacity.InstanceType{Name: "m", Image: "ami"}, Offer: capacity.Offer{Zone: "a", Price: price, Available: true}}}
	}
	since := "reached since " + p.clock.Now().UTC().Format(time.RFC3339)
	for range 3 {
		adm := p.spent(2, &Cost{Running: map[string]float64{}, InFlight: map[string]float64{}})
		if why, _ := adm.Refuses(pool, offers(1), nil, nil, false, ""); why != "" {
			t.Fatal(why)
		}
		if why, _ := adm.Refuses(pool, offers(100), nil, nil, false, ""); !strings.Contains(why, since) {
			t.Errorf("%s; want %s", why, since)
		}
		p.clock.Step(time.Minute)
	}
}

// Half of the launches of a minute are left to pods that wait, and a move that a budget stops doesn't count as demand for more.
func TestMovesLeaveBudgetToDemand(t *testing.T) {
	p := newPurse(t, Config{Budget: Budget{LaunchesPerMinute: 4, DollarsPerHour: 10}})
	pool, offers := &capacity.Pool{Name: "pool", NodeClass: "class"}, func(price float64) []capacity.NodeOffer {
		return []capacity.NodeOffer{{Type: &capacity.InstanceType{Name: "t"}, Offer: capacity.Offer{Price: price}}}
	}
	ask := func(moves bool, price float64) string {
		a := p.spent(2, &Cost{Running: map[string]float64{"pool": 5}, InFlight: map[string]float64{}})
		a.Moves = moves
		why, _ := a.Refuses(pool, offers(price), nil, nil, false, "")
		return why
	}
	if why := ask(true, 1); why != "" {
		t.Fatal(why)
	}
	if why := ask(true, 6); !strings.Contains(why, "maxDollarsPerHour") {
		t.Errorf("a move that exceeds the budget while both nodes run: %q", why)
	}
	if len(p.budgets.hit) > 0 {
		t.Errorf("the budget counts as reached: %v", p.budgets.hit)
	}
	p.buys("c1")
	p.buys("c2")
	if why := ask(true, 1); !strings.Contains(why, "maxLaunchesPerMinute") {
		t.Errorf("a move may launch the third of four: %q", why)
	}
	if why := ask(false, 1); why != "" {
		t.Errorf("demand may not launch the third of four: %s", why)
	}
}

// Without a limit launches are not remembered.
func TestLaunchesAreNotRememberedForNothing(t *testing.T) {
	for limit, want := range []int{0, 4} {
		p := newPurse(t, Config{Budget: Budget{LaunchesPerMinute: limit}})
		for i := range 4 {
			p.buys(fmt.Sprint("c", i))
		}
		if n := len(p.budgets.launches); n != want {
			t.Errorf("%d launches are remembered with a limit of %d, want %d", n, limit, want)
		}
	}
}
