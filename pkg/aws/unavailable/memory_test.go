package unavailable

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestMemory(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	changes := 0
	e := New(c, 3*time.Minute, func() { changes++ })
	e.Add(Scope{CapacityType: "spot", InstanceType: "m5.large", Zone: "a"})
	c.SetTime(time.Unix(60, 0))
	e.Add(Scope{CapacityType: "spot", InstanceType: "c5.large"}, Scope{Subnet: "subnet-1"})
	check := func(at int64, pool, quota, subnet bool, wantChanges int) {
		t.Helper()
		c.SetTime(time.Unix(at, 0))
		if e.Expire() {
			changes++
		}
		x := e.State()
		if x.Has("spot", "m5.large", "a", "") != pool || x.Has("spot", "c5.large", "b", "") != quota || x.Full("subnet-1") != subnet {
			t.Errorf("at %d s: pool %v, quota %v, subnet %v", at, x.Has("spot", "m5.large", "a", ""), x.Has("spot", "c5.large", "b", ""), x.Full("subnet-1"))
		}
		if x.Has("on-demand", "m5.large", "a", "") || x.Has("spot", "m5.large", "b", "") {
			t.Errorf("at %d s: others suffer", at)
		}
		if changes != wantChanges {
			t.Errorf("at %d s: %d changes, want %d", at, changes, wantChanges)
		}
	}
	check(61, true, true, true, 2)
	check(179, true, true, true, 2)
	check(180, false, true, true, 3)
	check(240, false, false, false, 4)
	check(500, false, false, false, 4)
}

// Capacity that was unavailable settles when it has been available for half an hour; each refusal begins that anew.
func TestCapacitySettles(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	e := New(c, 3*time.Minute, func() {})
	spot, other := capacity.OfferKey{CapacityType: "spot", InstanceType: "m5.large", Zone: "a"}, capacity.OfferKey{CapacityType: "on-demand", InstanceType: "m5.large", Zone: "a"}
	e.Add(scopeOf(spot), scopeOf(other))
	at := func(minutes int, unavailable, unsettled bool) {
		t.Helper()
		c.SetTime(time.Unix(int64(60*minutes), 0))
		e.Expire()
		x := e.State()
		if x.Has("spot", "m5.large", "a", "") != unavailable || x.Unsettled("spot", "m5.large", "a", "") != unsettled {
			t.Errorf("after %d min: unavailable %v, unsettled %v", minutes, !unavailable, !unsettled)
		}
		if x.Unsettled("on-demand", "m5.large", "a", "") != (minutes < 33) || x.Unsettled("spot", "m5.large", "b", "") {
			t.Errorf("after %d min: others are unsettled", minutes)
		}
	}
	at(0, true, true)
	at(3, false, true)
	at(20, false, true)
	e.Interrupted(spot)
	at(20, true, true)
	at(33, false, true)
	at(52, false, true)
	at(53, false, false)
}

// An offering of which an instance has not become a node is out for the class of that instance, for a while, and for no other.
func TestNotJoined(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	changes := 0
	e := New(c, 3*time.Minute, func() { changes++ })
	spot := capacity.OfferKey{CapacityType: "spot", InstanceType: "m5.large", Zone: "a"}
	e.NotJoined("team-a", spot)
	at := func(seconds int64, want bool) {
		t.Helper()
		c.SetTime(time.Unix(seconds, 0))
		e.Expire()
		x := e.State()
		if x.Avoided("team-a", "spot", "m5.large", "a") != want {
			t.Errorf("after %d s: not joined is %v", seconds, !want)
		}
		if x.Avoided("team-b", "spot", "m5.large", "a") || x.Avoided("team-a", "spot", "m5.large", "b") || x.Has("spot", "m5.large", "a", "") || x.Unsettled("spot", "m5.large", "a", "") {
			t.Errorf("after %d s: others suffer: %+v", seconds, x)
		}
	}
	at(0, true)
	at(899, true)
	at(900, false)
	if changes != 1 {
		t.Errorf("%d changes, want 1", changes)
	}
}

// An instance type that can't be launched from a class is out for this class, in all zones and capacity types, for a while.
func TestIncompatible(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	changes := 0
	e := New(c, 3*time.Minute, func() { changes++ })
	e.Incompatible("team-a")
	e.Incompatible("team-a", "m1.small", "m1.large")
	for _, seconds := range []int64{0, 899, 900} {
		want := seconds < 900
		c.SetTime(time.Unix(seconds, 0))
		e.Expire()
		x := e.State()
		for _, typ := range []string{"m1.small", "m1.large"} {
			if x.Avoided("team-a", "spot", typ, "a") != want || x.Avoided("team-a", "on-demand", typ, "b") != want {
				t.Errorf("after %d s: %s is avoided: %v", seconds, typ, !want)
			}
			if x.Avoided("team-b", "spot", typ, "a") || x.Avoided("team-a", "spot", "m5.large", "a") || x.Has("spot", typ, "a", "") {
				t.Errorf("after %d s: others suffer: %+v", seconds, x)
			}
		}
	}
	if changes != 1 {
		t.Errorf("%d changes, want 1", changes)
	}
}

// What EC2 recommends to leave stays available, and is less liked for an hour.
func TestRebalanceRecommended(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	changes := 0
	e := New(c, 3*time.Minute, func() { changes++ })
	e.RebalanceRecommended(capacity.OfferKey{CapacityType: "spot", InstanceType: "m5.large", Zone: "a"})
	x := e.State()
	if !x.Recommended("spot", "m5.large", "a") || x.Recommended("spot", "m5.large", "b") || x.Has("spot", "m5.large", "a", "") || x.Unsettled("spot", "m5.large", "a", "") || changes != 1 {
		t.Errorf("state %+v, %d changes", x, changes)
	}
	c.SetTime(time.Unix(3599, 0))
	if e.Expire() || !e.State().Recommended("spot", "m5.large", "a") {
		t.Error("it is forgotten within the hour")
	}
	c.SetTime(time.Unix(3600, 0))
	if !e.Expire() || e.State().Recommended("spot", "m5.large", "a") {
		t.Error("it isn't forgotten after an hour")
	}
}
