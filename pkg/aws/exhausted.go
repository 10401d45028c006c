package aws

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// scope names what has no capacity for now. Empty fields stand for all values: {spot, m5.large, a} is one pool, {spot, m5.large} a
// quota of the instance type, {spot} all of spot. A subnet without free addresses is a scope by its id. A pool that has no capacity in
// a placement group may have some outside: group is the group's id, and {zone, group} is a zone in which the group is full.
type scope struct {
	capacityType, instanceType, zone string
	subnet                           string
	group                            string
}

// exhausted remembers scopes without capacity, each for a limited time.
type exhausted struct {
	clock   clock.PassiveClock
	ttl     time.Duration
	changed func()

	now atomic.Pointer[exhaustion]
	mu  sync.Mutex // serializes writers of now
}

// exhaustion is the content of exhausted at one moment; immutable.
type exhaustion struct {
	until map[scope]time.Time
	next  time.Time // the earliest end; zero: none
}

func newExhausted(c clock.PassiveClock, ttl time.Duration, changed func()) *exhausted {
	e := &exhausted{clock: c, ttl: ttl, changed: changed}
	e.now.Store(&exhaustion{})
	return e
}

// add remembers scopes for the default time.
func (e *exhausted) add(scopes ...scope) { e.addFor(e.ttl, scopes...) }

// addFor remembers scopes for the given time; a later end that is already recorded is kept.
func (e *exhausted) addFor(ttl time.Duration, scopes ...scope) {
	if len(scopes) == 0 {
		return
	}
	e.mu.Lock()
	until := maps.Clone(e.now.Load().until)
	if until == nil {
		until = map[scope]time.Time{}
	}
	end := e.clock.Now().Add(ttl)
	for _, s := range scopes {
		if end.After(until[s]) {
			until[s] = end
		}
	}
	e.now.Store(exhaustionOf(until))
	e.now.Load().count()
	e.mu.Unlock()
	e.changed()
}

// expire forgets what has expired and reports whether there was anything. It does not call changed.
func (e *exhausted) expire() bool {
	now := e.clock.Now()
	if next := e.now.Load().next; next.IsZero() || next.After(now) {
		return false
	}
	e.mu.Lock()
	until := maps.Clone(e.now.Load().until)
	maps.DeleteFunc(until, func(_ scope, t time.Time) bool { return !t.After(now) })
	e.now.Store(exhaustionOf(until))
	e.now.Load().count()
	e.mu.Unlock()
	return true
}

func exhaustionOf(until map[scope]time.Time) *exhaustion {
	x := &exhaustion{until: until}
	for _, t := range until {
		if x.next.IsZero() || t.Before(x.next) {
			x.next = t
		}
	}
	return x
}

// has reports whether a pool has no capacity for a launch into a placement group ("": into none).
func (x *exhaustion) has(capacityType, instanceType, zone, group string) bool {
	if len(x.until) == 0 {
		return false
	}
	pool := scope{capacityType: capacityType, instanceType: instanceType, zone: zone}
	for _, s := range [...]scope{pool, {capacityType: capacityType, instanceType: instanceType}, {capacityType: capacityType}} {
		if _, ok := x.until[s]; ok {
			return true
		}
	}
	if group == "" {
		return false
	}
	pool.group = group
	_, here := x.until[pool]
	_, full := x.until[scope{zone: zone, group: group}]
	return here || full
}

// full reports whether a subnet has no free addresses.
func (x *exhaustion) full(subnet string) bool {
	_, ok := x.until[scope{subnet: subnet}]
	return ok
}
