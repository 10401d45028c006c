package unavailable

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// avoidedFor is how long a node class avoids an offering after an instance of it has not become a node in time, and an instance type after it
	// could not be launched from the class.
	avoidedFor = 15 * time.Minute
	// settlesAfter is how long capacity must have been available again before nodes for which no pod waits (consolidation's) are launched in it.
	settlesAfter = 30 * time.Minute
	// leavingFor is how long other offerings are preferred to one that EC2 has recommended to leave.
	leavingFor = time.Hour
)

// Scope names what has no capacity for now. Empty fields stand for all values: {spot, m5.large, a} is one pool, {spot, m5.large} a
// quota of the instance type, {spot} all of spot. A subnet without free addresses is a scope by its id. A pool that has no capacity in
// a placement group may have some outside: Group is the group's id, and {zone, group} is a zone in which the group is full.
type Scope struct {
	CapacityType, InstanceType, Zone string
	Subnet                           string
	Group                            string
	nodeClass                        string // set only for what the class avoids; {type, class} is an instance type that can't be launched from it
}

// scopeOf returns the scope of one offering.
func scopeOf(o capacity.OfferKey) Scope {
	return Scope{CapacityType: o.CapacityType, InstanceType: o.InstanceType, Zone: o.Zone}
}

// Memory remembers scopes, each for a limited time. Safe for concurrent use.
type Memory struct {
	clock   clock.PassiveClock
	ttl     time.Duration
	changed func()

	now atomic.Pointer[State]
	mu  sync.Mutex // serializes writers of now
}

// New returns a Memory that calls changed when something is added. For the time ttl, a scope without capacity isn't tried again.
func New(c clock.PassiveClock, ttl time.Duration, changed func()) *Memory {
	e := &Memory{clock: c, ttl: ttl, changed: changed}
	e.now.Store(&State{})
	return e
}

// State is the content of a Memory at one moment; immutable.
type State struct {
	until map[Scope]time.Time // until when a scope counts as without capacity
	// settles holds, for scopes that were without capacity, when they will have been available again for settlesAfter. leaving is until when EC2's
	// recommendation to leave a scope counts.
	settles, leaving map[Scope]time.Time
	avoided          map[Scope]time.Time // until when a class avoids a scope
	next             time.Time           // the earliest time in these maps; zero: they are empty
}

// Unavailable returns a state in which the scopes have no capacity, for ever.
func Unavailable(scopes ...Scope) *State {
	x := &State{until: map[Scope]time.Time{}}
	for _, s := range scopes {
		x.until[s] = time.Time{}
	}
	return x
}

// State returns what is remembered now. What has expired is in it until Expire is called.
func (e *Memory) State() *State { return e.now.Load() }

// Set replaces what is remembered.
func (e *Memory) Set(x *State) { e.now.Store(x) }

// Add remembers scopes without capacity.
func (e *Memory) Add(scopes ...Scope) {
	if len(scopes) == 0 {
		return
	}
	e.change(func(x *State, now time.Time) {
		for _, s := range scopes {
			extend(x.until, s, now.Add(e.ttl))
			extend(x.settles, s, now.Add(e.ttl+settlesAfter))
		}
	})
	e.changed()
}

func extend(all map[Scope]time.Time, s Scope, end time.Time) {
	if end.After(all[s]) {
		all[s] = end
	}
}

// NotJoined records that an instance of a node class launched as o has not become a node. Another offering, of the same pool or of one with
// a lower weight, is more likely to work. Other classes may still use o, because the cause is more likely in the class than in the
// offering.
func (e *Memory) NotJoined(nodeClass string, o capacity.OfferKey) {
	s := scopeOf(o)
	s.nodeClass = nodeClass
	e.change(func(x *State, now time.Time) { extend(x.avoided, s, now.Add(avoidedFor)) })
	e.changed()
}

// Incompatible records that EC2 can't launch instance types from a node class, whatever the zone and capacity type: they don't support what the class
// asks for. Other classes may still use them, and so may this one after a change, which isn't noticed.
func (e *Memory) Incompatible(nodeClass string, instanceTypes ...string) {
	if len(instanceTypes) == 0 {
		return
	}
	e.change(func(x *State, now time.Time) {
		for _, t := range instanceTypes {
			extend(x.avoided, Scope{InstanceType: t, nodeClass: nodeClass}, now.Add(avoidedFor))
		}
	})
	e.changed()
}

// Interrupted records that EC2 interrupts an instance launched as o: its pool is unavailable for a while.
func (e *Memory) Interrupted(o capacity.OfferKey) { e.Add(scopeOf(o)) }

// RebalanceRecommended records that EC2 recommends to leave an offering. It remains available, and others are preferred to it for an hour.
func (e *Memory) RebalanceRecommended(o capacity.OfferKey) {
	e.change(func(x *State, now time.Time) { extend(x.leaving, scopeOf(o), now.Add(leavingFor)) })
	e.changed()
}

// Expire forgets what has expired and reports whether there was anything. It does not call changed.
func (e *Memory) Expire() bool {
	now := e.clock.Now()
	if next := e.State().next; next.IsZero() || next.After(now) {
		return false
	}
	e.change(func(x *State, now time.Time) {
		for _, all := range x.all() {
			maps.DeleteFunc(all, func(_ Scope, t time.Time) bool { return !t.After(now) })
		}
	})
	return true
}

// change replaces what is remembered by a changed copy.
func (e *Memory) change(f func(x *State, now time.Time)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.State()
	x := &State{until: copied(old.until), settles: copied(old.settles), leaving: copied(old.leaving), avoided: copied(old.avoided)}
	f(x, e.clock.Now())
	for _, all := range x.all() {
		for _, t := range all {
			if x.next.IsZero() || t.Before(x.next) {
				x.next = t
			}
		}
	}
	e.now.Store(x)
	x.count()
}

// all returns everything that ends by itself.
func (x *State) all() []map[Scope]time.Time {
	return []map[Scope]time.Time{x.until, x.settles, x.leaving, x.avoided}
}

func copied(all map[Scope]time.Time) map[Scope]time.Time {
	out := make(map[Scope]time.Time, len(all)+1)
	maps.Copy(out, all)
	return out
}

// Has reports whether a pool has no capacity for a launch into a placement group ("": into none).
func (x *State) Has(capacityType, instanceType, zone, group string) bool {
	return within(x.until, capacityType, instanceType, zone, group)
}

// Unsettled reports whether Has was true for the same pool and group within the last half hour (settlesAfter).
func (x *State) Unsettled(capacityType, instanceType, zone, group string) bool {
	return within(x.settles, capacityType, instanceType, zone, group)
}

// Recommended reports whether EC2 has recommended within the last hour to leave a pool.
func (x *State) Recommended(capacityType, instanceType, zone string) bool {
	_, yes := x.leaving[Scope{CapacityType: capacityType, InstanceType: instanceType, Zone: zone}]
	return yes
}

// Avoided reports whether within the last quarter of an hour (avoidedFor) an instance of the node class in a pool (instance type, zone, capacity
// type) has failed to become a node, or the instance type could not be launched from the class.
func (x *State) Avoided(nodeClass, capacityType, instanceType, zone string) bool {
	if len(x.avoided) == 0 {
		return false
	}
	_, notJoined := x.avoided[Scope{CapacityType: capacityType, InstanceType: instanceType, Zone: zone, nodeClass: nodeClass}]
	_, incompatible := x.avoided[Scope{InstanceType: instanceType, nodeClass: nodeClass}]
	return notJoined || incompatible
}

// within reports whether some scopes include a pool.
func within(all map[Scope]time.Time, capacityType, instanceType, zone, group string) bool {
	if len(all) == 0 {
		return false
	}
	pool := Scope{CapacityType: capacityType, InstanceType: instanceType, Zone: zone}
	for _, s := range [...]Scope{pool, {CapacityType: capacityType, InstanceType: instanceType}, {CapacityType: capacityType}} {
		if _, ok := all[s]; ok {
			return true
		}
	}
	if group == "" {
		return false
	}
	pool.Group = group
	_, here := all[pool]
	_, full := all[Scope{Zone: zone, Group: group}]
	return here || full
}

// Full reports whether a subnet has no free addresses.
func (x *State) Full(subnet string) bool {
	_, ok := x.until[Scope{Subnet: subnet}]
	return ok
}
