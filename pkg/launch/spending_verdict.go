package launch

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Ending records why a claim is about to be ended. A nil fault: that is no failure.
func (s *Spending) Ending(claim string, fault *guard.Fault) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.machines[claim]; b != nil && b.end == nil && !b.neutral {
		b.end, b.neutral = fault, fault == nil
	}
}

// Decided reports whether a claim's instance has had its verdict, or is not watched.
func (s *Spending) Decided(claim string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard.Decided(claim)
}

// Emptied records that a claim is about to be ended because its node is empty. That is a failure if pods that it was bought for still wait.
func (s *Spending) Emptied(claim string) {
	if s != nil {
		s.givenBack(claim, func(uid types.UID) bool { return s.pending.Get(uid) != nil }, 0)
	}
}

// unused records that a claim is about to be ended because the plan that it was launched for has fallen through. If its pods wait for other
// members of their gang that can't be placed, the same would be bought again and again: that is forgiven a few times. waits reports whether
// a pod has no other capacity.
func (s *Spending) unused(claim string, waits func(types.UID) bool) {
	if s != nil {
		s.givenBack(claim, waits, mostGangs)
	}
}

func (s *Spending) givenBack(claim string, waits func(types.UID) bool, chance int) {
	s.mu.Lock()
	var wanted map[types.UID]guard.Workload
	b := s.machines[claim]
	thrown := false
	if b != nil {
		wanted, thrown = b.wanted, len(b.thrown) > 0
		if _, none := podless(b.workloads); !none && len(wanted) == 0 && !s.guard.Served(claim) {
			for _, w := range b.workloads {
				s.unfulfilled[w] = s.clock.Now()
			}
		}
	}
	s.mu.Unlock()
	var waiting []guard.Workload
	for uid, w := range wanted {
		if waits(uid) {
			waiting = addWorkload(waiting, w)
		}
	}
	overtaken := false
	if b != nil {
		s.mu.Lock()
		overtaken = s.overtakenLocked(b, waiting)
		s.mu.Unlock()
	}
	switch {
	case len(waiting) > 0:
		s.Ending(claim, &guard.Fault{Cause: causeGivenBack, Message: "its pods were not bound there", Workloads: waiting, Chance: chance, Overtaken: overtaken})
	case !thrown: // else the evicted or rejected pods say why it has failed
		s.Ending(claim, nil)
	}
}

// unfulfilledOf says that a machine that was bought for pods which the pod's workload was expected to make was given back of late, because
// they did not come: whatever keeps them away would keep them away again.
func (s *Spending) unfulfilledOf(pod *corev1.Pod) bool {
	if s == nil || pod == nil {
		return false
	}
	s.mu.Lock()
	none := len(s.unfulfilled) == 0
	s.mu.Unlock()
	if none {
		return false
	}
	w := s.workloadOf(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, late := s.unfulfilled[w]
	return late
}

// overClaim records that a claim has ended or is about to, and gives the verdict. launched: it had an instance.
func (s *Spending) overClaim(claim string, launched bool) {
	if s == nil {
		return
	}
	s.settle(nil)
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.machines[claim]
	if b == nil || b.over {
		return
	}
	b.over = true
	switch {
	case !launched || b.neutral:
	case b.end != nil:
		s.failLocked(b, *b.end, now)
	case len(b.thrown) > 0:
		s.failLocked(b, mergeFaults(b.thrown), now)
	case !b.launched: // it ended before an instance was seen, for insufficient capacity, say
	default:
		s.failLocked(b, *guard.Deleted("it was deleted before it had done work, as another had been within the hour"), now)
	}
	s.guard.End(claim, now)
	s.forgetLocked(b)
	s.noticeLocked()
}

// fail gives the verdict on an instance that failed.
func (s *Spending) fail(claim string, f guard.Fault) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.machines[claim]; b != nil {
		s.failLocked(b, f, s.clock.Now())
		s.noticeLocked()
	}
}

func (s *Spending) failLocked(b *watched, f guard.Fault, now time.Time) {
	s.guard.Fail(b.claim, f, now)
}

func (s *Spending) serveLocked(b *watched, w guard.Workload, now time.Time, tell bool) {
	if !s.guard.Served(b.claim) && tell {
		s.served[b.claim] = true
	}
	s.guard.Serve(b.claim, w, now)
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

// unusedFor is how long none of the pods that an instance was bought for has to be on it or planned there until it is clear that it won't
// serve them.
const unusedFor = time.Minute

// settle gives the verdicts that are due. reservations tells where capacity is reserved for pods; nil: only look for instances that have
// served.
func (s *Spending) settle(reservations *reservations.Ledger) {
	if s == nil {
		return
	}
	now := s.clock.Now()
	var left []string
	s.mu.Lock()
	for name, b := range s.machines {
		s.workedLocked(b, now)
		if reservations != nil && !s.guard.Decided(name) && !b.lodges() {
			left = append(left, name)
		}
	}
	s.mu.Unlock()
	keeps := map[string]bool{}
	if len(left) > 0 {
		keeps = reservations.Keeps(left)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range left {
		if b := s.machines[name]; b != nil && !b.lodges() && !keeps[name] {
			s.leftLocked(b, now)
		} else if b != nil {
			b.unusedSince = time.Time{}
		}
	}
	maps.DeleteFunc(s.moved, func(_ guard.Workload, at time.Time) bool { return now.Sub(at) >= movedFor })
	maps.DeleteFunc(s.unfulfilled, func(_ guard.Workload, at time.Time) bool { return now.Sub(at) >= unfulfilledFor })
	s.guard.Tick(now)
	s.noticeLocked()
}

// lodges reports whether a pod that the instance was bought for is on it, or it was bought for no pod.
func (b *watched) lodges() bool {
	if _, none := podless(b.workloads); none {
		return true
	}
	for _, l := range b.pods {
		if !l.left && slices.Contains(b.workloads, l.workload) {
			return true
		}
	}
	return false
}

// workedLocked checks whether the instance has served.
func (s *Spending) workedLocked(b *watched, now time.Time) {
	if b.pods == nil {
		return
	}
	for _, l := range b.pods {
		s.ranLocked(b, l, now)
	}
	if s.guard.Served(b.claim) && b.steady && now.Sub(b.at) >= thrownWithin {
		b.pods = nil // what happens there no longer matters
	}
	if b.initialized.IsZero() || b.steady || now.Sub(b.initialized) < servedAfter {
		return
	}
	b.steady = true
	before := s.guard.Served(b.claim)
	s.guard.Steady(b.claim, now)
	if !before && s.guard.Served(b.claim) {
		s.served[b.claim] = true
	}
	if w, none := podless(b.workloads); none {
		s.serveLocked(b, w, now, true)
	}
}

// ranLocked counts a pod that has been Running for long enough.
func (s *Spending) ranLocked(b *watched, l *boundPod, now time.Time) {
	if !l.left && !l.counted && !l.running.IsZero() && now.Sub(l.running) >= servedAfter {
		l.counted = true
		s.serveLocked(b, l.workload, now, true)
	}
}

// leftLocked looks at an instance that none of the pods it was bought for is on or planned on. If some were evicted or rejected, it has
// failed. Otherwise it gets no verdict in the end, unless it is a probe and pods that it was bought for still wait.
func (s *Spending) leftLocked(b *watched, now time.Time) {
	switch {
	case len(b.thrown) > 0:
		s.failLocked(b, mergeFaults(b.thrown), now)
	case b.unusedSince.IsZero():
		b.unusedSince = now
	case now.Sub(b.unusedSince) < unusedFor || len(b.probes) == 0:
	case s.waitsLocked(b.wanted) && !s.overtakenLocked(b, b.workloads):
		// Whatever kept its pods off this instance would keep them off the next one.
		s.failLocked(b, guard.Fault{Cause: causeGivenBack, Message: "its pods were not bound there", Workloads: b.workloads}, now)
	default: // it is no longer a probe: another one may be tried when pods wait
		s.guard.End(b.claim, now)
		s.forgetLocked(b)
	}
}

const causeGivenBack = "given back"

// overtakenLocked reports whether the plan that bought the instance was right when it was made: pods of one of the workloads have come or
// gone since, which changes what a spread or an affinity allows, or it is on record that its pods were refused for no other reason.
func (s *Spending) overtakenLocked(b *watched, workloads []guard.Workload) bool {
	return slices.ContainsFunc(workloads, func(w guard.Workload) bool { return s.moved[w].After(b.at) }) ||
		len(b.thrown) > 0 && mergeFaults(b.thrown).Overtaken
}

// waitsLocked reports whether one of these very pods still waits. Others of its workload may have replaced pods that a user deleted.
func (s *Spending) waitsLocked(wanted map[types.UID]guard.Workload) bool {
	for uid := range wanted {
		if s.pending.Get(uid) != nil {
			return true
		}
	}
	return false
}

// forgetLocked ends the watch of an instance.
func (s *Spending) forgetLocked(b *watched) {
	for _, k := range b.probes {
		s.dirty[guard.OwnerOf(k)] = true
	}
	delete(s.machines, b.claim)
	if s.byNode[b.node] == b {
		delete(s.byNode, b.node)
	}
	for uid := range b.wanted {
		if s.byPod[uid] == b {
			delete(s.byPod, uid)
		}
	}
}

// podless reports whether an instance was bought for no pod, and returns what for.
func podless(all []guard.Workload) (w guard.Workload, yes bool) {
	if len(all) > 0 {
		w = all[0]
	}
	return w, w.Namespace == ""
}
