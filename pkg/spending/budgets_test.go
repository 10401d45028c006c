package spending

import (
	"errors"
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

// A class that isn't ready shows no prices, and its nodes cost what they did: the budget doesn't become free because a class is broken.
func TestNodesOfAClassThatIsNotReadyCost(t *testing.T) {
	p := newPurse(t, Config{Budget: Budget{DollarsPerHour: 10}})
	m := &capacity.InstanceType{Name: "m", Offers: []capacity.Offer{{Zone: "a", CapacityType: "on-demand", Price: 9, Available: true}}}
	shows := map[string][]*capacity.InstanceType{"class": {m}, "other": {m}}
	p.types = func(class string) ([]*capacity.InstanceType, error) {
		if shows[class] == nil {
			return nil, errors.New("not ready")
		}
		return shows[class], nil
	}
	key := capacity.OfferKey{InstanceType: "m", Zone: "a", CapacityType: "on-demand"}
	running := &capacity.Claim{Name: "running", Pool: "pool", NodeClass: "class", InstanceType: "m", Zone: "a", CapacityType: "on-demand", Launched: true}
	ordered := &capacity.Claim{Name: "ordered", Pool: "pool", NodeClass: "class", LaunchBatch: &capacity.LaunchBatch{Offers: []capacity.OfferKey{key}}}
	for _, tt := range []struct {
		name              string
		claims            []*capacity.Claim
		ready, other      bool
		restart           bool
		running, inFlight float64
	}{
		{name: "ready", claims: []*capacity.Claim{running, ordered}, ready: true, running: 9, inFlight: 9},
		{name: "ready no more", claims: []*capacity.Claim{running, ordered}, running: 9, inFlight: 9},
		{name: "at the start of a process that knows another class", restart: true, other: true, running: 18,
			claims: []*capacity.Claim{running, {Name: "other", Pool: "pool", NodeClass: "other", InstanceType: "m", Zone: "a", CapacityType: "on-demand", Launched: true}}},
	} {
		delete(shows, "class")
		delete(shows, "other")
		if tt.ready {
			shows["class"] = []*capacity.InstanceType{m}
		}
		if tt.other {
			shows["other"] = []*capacity.InstanceType{m}
		}
		if tt.restart {
			p.known = knownPrices{}
		}
		all := map[string]*capacity.Claim{}
		for _, c := range tt.claims {
			all[c.Name] = c
		}
		cost := p.Cost(all)
		if cost.Running["pool"] != tt.running || cost.InFlight["pool"] != tt.inFlight {
			t.Errorf("%s: $%v running, $%v in flight; want $%v, $%v", tt.name, cost.Running["pool"], cost.InFlight["pool"], tt.running, tt.inFlight)
		}
		offers := []capacity.NodeOffer{{Type: m, Offer: m.Offers[0]}}
		if why, _ := p.Check(1, func() map[string]*capacity.Claim { return all }).Refuses(&capacity.Pool{Name: "third"}, offers, nil, nil, false, ""); why == "" {
			t.Errorf("%s: bought beyond the budget", tt.name)
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
