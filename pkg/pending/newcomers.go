package pending

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// newcomers are the pods of our profiles that may not have had their first scheduling cycle. The lock of Pods guards them, but not cycles.
type newcomers struct {
	pods []firstSeen // pods first seen within the last arrivalPatience, and some older ones, in order of time
	// last is when the most recent newcomer, newest, was first seen. alone: no other was within arrivalPatience before that.
	last   time.Time
	newest types.UID
	alone  bool
	begun  time.Time // when the first newcomer came after which no arrivalPatience has passed without another
	cycles cycles
}

// firstSeen is when this process first saw a pod.
type firstSeen struct {
	uid  types.UID
	seen time.Time
}

func (n *newcomers) add(uid types.UID, now time.Time) {
	n.since(now.Add(-arrivalPatience))
	if n.alone = now.Sub(n.last) > arrivalPatience; n.alone {
		n.begun = now
	}
	n.pods, n.last, n.newest = append(n.pods, firstSeen{uid, now}), now, uid
}

// since keeps only pods that were first seen after a time.
func (n *newcomers) since(after time.Time) {
	for len(n.pods) > 0 && !n.pods[0].seen.After(after) {
		n.pods = n.pods[1:]
	}
}

// lastArrival returns when the most recent pod of our profiles was first seen, and whether no other was within arrivalPatience before that.
func (p *Pods) lastArrival() (seen time.Time, alone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newcomers.last, p.newcomers.alone
}

// stream returns when the first and the last pod came of those between which no arrivalPatience has passed without another.
func (p *Pods) stream() (begun, last time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newcomers.begun, p.newcomers.last
}

// untried reports whether a pod that was first seen after a time has not had its first scheduling cycle. Only one goroutine may ask.
func (p *Pods) untried(after time.Time) bool {
	p.mu.Lock()
	p.newcomers.since(after)
	pods := p.newcomers.pods
	p.newcomers.pods = nil
	p.mu.Unlock()
	first := slices.IndexFunc(pods, func(one firstSeen) bool { return p.awaitsCycle(one.uid) })
	if first < 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newcomers.pods = append(pods[first:], p.newcomers.pods...)
	return true
}

// newestUntried reports whether the most recent pod has not had its first scheduling cycle, although it came less than admittedWindow ago. Of equal
// priority, pods have cycles in the order in which they came, so a scheduler that is behind hasn't come to the newest. One that hasn't asked for a pod
// in arrivalPatience isn't behind: then a plugin keeps the newest out of the queue, maybe for long.
func (p *Pods) newestUntried(now time.Time) bool {
	p.mu.Lock()
	uid, seen := p.newcomers.newest, p.newcomers.last
	p.mu.Unlock()
	age := now.Sub(seen)
	return age < admittedWindow && min(age, p.newcomers.cycles.since(now)) <= arrivalPatience && p.awaitsCycle(uid)
}

// awaitsCycle reports whether the pod, a newcomer, has had no scheduling cycle and is in no plan.
func (p *Pods) awaitsCycle(uid types.UID) bool {
	return p.Has(uid) && !p.newcomers.cycles.hasFailed(uid) && p.reservations.Free(uid)
}
