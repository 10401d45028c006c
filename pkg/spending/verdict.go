package spending

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

const (
	// servedAfter is how long a pod has to be Running, or a node that was launched for no pod initialized, until its instance has served.
	servedAfter = 2 * time.Minute
	// thrownWithin: a pod that is evicted or rejected within this time after the instance was bought counts against its workload.
	thrownWithin = time.Hour
	// unusedFor is how long an instance has to be without any pod that it was bought for, bound there or planned there, until it is clear
	// that it won't serve them.
	unusedFor = time.Minute
	// mostGangs is how many rounds of instances for gangs that could not be placed as a whole are forgiven within an hour.
	mostGangs = 2

	causeGivenBack = "given back"
)

// Ending records why a claim is about to be ended. A nil fault: that is no failure.
func (g *Guard) Ending(claim string, fault *guard.Fault) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.state.instances.byClaim[claim]; b != nil && b.end == nil && !b.neutral {
		b.end, b.neutral = fault, fault == nil
	}
}

// Decided reports whether a claim's instance has had its verdict, or is not watched.
func (g *Guard) Decided(claim string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.breakers.Decided(claim)
}

// Served reports whether a claim's instance has served.
func (g *Guard) Served(claim string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.breakers.Served(claim)
}

// Emptied records that a claim is about to be ended because its node is empty. That is a failure if pods that it was bought for still wait.
func (g *Guard) Emptied(claim string) {
	if g != nil {
		g.givenBack(claim, func(uid types.UID) bool { return g.state.workloads.pods.Get(uid) != nil }, 0)
	}
}

// Unused records that a claim is about to be ended because the plan that it was launched for has fallen through. If its pods wait for other
// members of their gang that can't be placed, the same would be bought again and again: that is forgiven a few times. waits reports whether
// a pod has no other capacity.
func (g *Guard) Unused(claim string, waits func(types.UID) bool) {
	if g != nil {
		g.givenBack(claim, waits, mostGangs)
	}
}

func (g *Guard) givenBack(claim string, waits func(types.UID) bool, chance int) {
	g.mu.Lock()
	var wanted map[types.UID]guard.Workload
	b := g.state.instances.byClaim[claim]
	thrown := false
	if b != nil {
		wanted, thrown = b.wanted, len(b.thrown) > 0
		if _, none := podless(b.workloads); !none && len(wanted) == 0 && !g.state.breakers.Served(claim) {
			for _, w := range b.workloads {
				g.state.recent.unfulfilled[w] = g.clock.Now()
			}
		}
	}
	g.mu.Unlock()
	var waiting []guard.Workload
	for uid, w := range wanted {
		if waits(uid) {
			waiting = addWorkload(waiting, w)
		}
	}
	overtaken := false
	if b != nil {
		g.mu.Lock()
		overtaken = g.state.overtaken(b, waiting)
		g.mu.Unlock()
	}
	switch {
	case len(waiting) > 0:
		g.Ending(claim, &guard.Fault{Cause: causeGivenBack, Message: "its pods were not bound there", Workloads: waiting, Chance: chance, Overtaken: overtaken})
	case !thrown: // else the evicted or rejected pods say why it has failed
		g.Ending(claim, nil)
	}
}

// Unfulfilled reports whether, within the last hour, a machine was ended without use that was bought only for anticipated pods of the pod's
// workload, which were never created: whatever prevents their creation would prevent it again.
func (g *Guard) Unfulfilled(pod *corev1.Pod) bool {
	if g == nil || pod == nil {
		return false
	}
	g.mu.Lock()
	none := len(g.state.recent.unfulfilled) == 0
	g.mu.Unlock()
	if none {
		return false
	}
	w := g.WorkloadOf(pod)
	g.mu.Lock()
	defer g.mu.Unlock()
	_, late := g.state.recent.unfulfilled[w]
	return late
}

// Ended records that a claim has ended or is about to, and gives the verdict. launched: it had an instance.
func (g *Guard) Ended(claim string, launched bool) {
	if g == nil {
		return
	}
	g.Settle(nil)
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.state
	b := s.instances.byClaim[claim]
	if b == nil || b.over {
		return
	}
	b.over = true
	switch {
	case !launched || b.neutral:
	case b.end != nil:
		s.breakers.Fail(b.claim, *b.end, now)
	case len(b.thrown) > 0:
		s.breakers.Fail(b.claim, mergeFaults(b.thrown), now)
	case !b.launched: // it ended before an instance was seen, for insufficient capacity, say
	default:
		s.breakers.Fail(b.claim, *guard.Deleted("it was deleted before it had done work, as another had been within the hour"), now)
	}
	s.breakers.End(claim, now)
	s.forget(b)
	s.notice()
}

// Fail gives the verdict on an instance that failed.
func (g *Guard) Fail(claim string, f guard.Fault) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.instances.byClaim[claim] != nil {
		g.state.breakers.Fail(claim, f, g.clock.Now())
		g.state.notice()
	}
}

// mergeFaults merges the faults of several pods into one, with the message of the first.
func mergeFaults(all []guard.Fault) guard.Fault {
	f := all[0]
	f.Workloads = slices.Clone(f.Workloads)
	for _, o := range all[1:] {
		f.Chance, f.Overtaken = min(f.Chance, o.Chance), f.Overtaken && o.Overtaken
		for _, w := range o.Workloads {
			f.Workloads = addWorkload(f.Workloads, w)
		}
	}
	return f
}

// Reservations tells for which claims capacity is reserved on their nodes, or pods are being bound there.
type Reservations interface {
	Keeps(claims []string) map[string]bool
}

// Settle gives the verdicts that are due. reservations nil: only look for instances that have served.
func (g *Guard) Settle(reservations Reservations) {
	if g == nil {
		return
	}
	now := g.clock.Now()
	s := &g.state
	var left []string
	g.mu.Lock()
	for name, b := range s.instances.byClaim {
		s.worked(b, now)
		if reservations != nil && !s.breakers.Decided(name) && !b.lodges() {
			left = append(left, name)
		}
	}
	g.mu.Unlock()
	keeps := map[string]bool{}
	if len(left) > 0 {
		keeps = reservations.Keeps(left)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range left {
		if b := s.instances.byClaim[name]; b != nil && !b.lodges() && !keeps[name] {
			s.left(b, now)
		} else if b != nil {
			b.unusedSince = time.Time{}
		}
	}
	s.recent.expire(now)
	s.breakers.Tick(now)
	s.notice()
}

// serve records that an instance has served a workload.
func (s *state) serve(b *instance, w guard.Workload, now time.Time) {
	if !s.breakers.Served(b.claim) {
		s.served[b.claim] = true
	}
	s.breakers.Serve(b.claim, w, now)
}

// worked checks whether the instance has served.
func (s *state) worked(b *instance, now time.Time) {
	if b.pods == nil {
		return
	}
	for _, l := range b.pods {
		s.ran(b, l, now)
	}
	if s.breakers.Served(b.claim) && b.steady && now.Sub(b.at) >= thrownWithin {
		b.pods = nil // what happens there no longer matters
	}
	if b.initialized.IsZero() || b.steady || now.Sub(b.initialized) < servedAfter {
		return
	}
	b.steady = true
	before := s.breakers.Served(b.claim)
	s.breakers.Steady(b.claim, now)
	if !before && s.breakers.Served(b.claim) {
		s.served[b.claim] = true
	}
	if w, none := podless(b.workloads); none {
		s.serve(b, w, now)
	}
}

// ran counts a pod that has been Running for long enough.
func (s *state) ran(b *instance, l *boundPod, now time.Time) {
	if !l.left && !l.counted && !l.running.IsZero() && now.Sub(l.running) >= servedAfter {
		l.counted = true
		s.serve(b, l.workload, now)
	}
}

// left looks at an instance whose pods have left: none of those that it was bought for is bound or planned there. If some were evicted or rejected,
// it has failed. It has also failed if it is a probe and pods that it was bought for still wait. Otherwise it gets no verdict.
func (s *state) left(b *instance, now time.Time) {
	switch {
	case len(b.thrown) > 0:
		s.breakers.Fail(b.claim, mergeFaults(b.thrown), now)
	case b.unusedSince.IsZero():
		b.unusedSince = now
	case now.Sub(b.unusedSince) < unusedFor || len(b.probes) == 0:
	case s.workloads.waits(b.wanted) && !s.overtaken(b, b.workloads):
		// Whatever kept its pods off this instance would keep them off the next one.
		s.breakers.Fail(b.claim, guard.Fault{Cause: causeGivenBack, Message: "its pods were not bound there", Workloads: b.workloads}, now)
	default: // it is no longer a probe: another one may be tried when pods wait
		s.breakers.End(b.claim, now)
		s.forget(b)
	}
}

// overtaken reports whether the plan that bought the instance was right when it was made: pods of one of the workloads have come or gone
// since, which changes what a spread or an affinity allows, or all faults that were recorded for its pods are put down to such changes.
func (s *state) overtaken(b *instance, workloads []guard.Workload) bool {
	return s.recent.movedSince(b.at, workloads) || len(b.thrown) > 0 && mergeFaults(b.thrown).Overtaken
}
