package aws

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// scope is what has no capacity for now. Empty fields stand for all values: {spot, m5.large, a} is one pool,
// {spot, m5.large} a quota of the type's, {spot} spot as such. A subnet without addresses is a scope by its id. What has no
// capacity in a placement group may have some outside: group is its id, and {zone, group} a zone where the group is full.
type scope struct {
	capacityType, instanceType, zone string
	subnet                           string
	group                            string
}

// exhausted remembers what has no capacity, each for a while.
type exhausted struct {
	clock   clock.PassiveClock
	ttl     time.Duration
	changed func()

	now atomic.Pointer[exhaustion]
	mu  sync.Mutex // serializes writers of now
}

// exhaustion is what is remembered at one moment; never changed.
type exhaustion struct {
	until map[scope]time.Time
	next  time.Time // the earliest end; zero: none
}

func newExhausted(c clock.PassiveClock, ttl time.Duration, changed func()) *exhausted {
	e := &exhausted{clock: c, ttl: ttl, changed: changed}
	e.now.Store(&exhaustion{})
	return e
}

// add remembers scopes from now on.
func (e *exhausted) add(scopes ...scope) { e.addFor(e.ttl, scopes...) }

// addFor remembers scopes for a while of their own; what is remembered longer stays so.
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

// expire forgets what is over and says whether there was anything. It does not tell of the change.
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

// has says whether a pool is without capacity, for whom launches into a placement group ("": none).
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

// full says whether a subnet has no addresses.
func (x *exhaustion) full(subnet string) bool {
	_, ok := x.until[scope{subnet: subnet}]
	return ok
}
