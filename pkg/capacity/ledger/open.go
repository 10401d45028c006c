package ledger

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/reasons"
)

// waits returns why pods of the class can't be bound to the node now, or nil if they can. It is the table of docs/early-binding.md: no pod
// is bound early that must not be.
func (n *node) waits(c *capacity.Class) error { return n.waitsUntil(c, c.Bind) }

// waitsUntil is waits for pods that may be bound from the time bind on, whatever c.Bind says.
func (n *node) waitsUntil(c *capacity.Class, bind capacity.BindTime) error {
	switch {
	case n.fenced:
		return reasons.ErrRemoved
	case !n.cached:
		return reasons.ErrNotLaunched
	case n.status.Managed && n.claim == "" && !n.status.Registered && !n.status.Initialized:
		return reasons.ErrUnclaimed // its kubelet was faster than our record of the launch: what is planned for it isn't known here
	}
	return n.status.Waits(c, bind)
}

// waits returns why no pod can be bound to the slot now, or nil if one can. The node certainly has memory for the pods that were planned
// first (Status.Memory). Later ones wait until its kubelet has shown how much memory there is: it would reject pods that don't fit.
func (s *slot) waits() error {
	if err := s.node.waits(s.class.Class); err != nil {
		return err
	}
	// Pods that were bound to a recovered node before the restart aren't counted in s.planned, so none of its slots is certain.
	if n := s.node; n.status.Uncertain(s.class.Class) && (n.recovered || s.planned > n.status.Memory.Certain) {
		return reasons.ErrUncertain
	}
	return nil
}

// fitMemory drops the slots for which a node has turned out to have too little memory: those planned last. Their pods are planned again,
// now that the size of such nodes is known, and so are the pods of their groups whose gates have not opened yet. If nothing but a spread joins a
// group, and all its pods are of one class, the other pods keep their reservations and wait there until the dropped pod has a new one (behind.go).
func (l *Ledger) fitMemory(n *node, now time.Time) {
	n.fitted = true
	var rests []*group
	for _, s := range slices.Backward(slices.Clone(n.slots)) {
		if has := n.status.Memory.Certain; has > 0 && !n.recovered && s.planned > has && s.class.Requests[corev1.ResourceMemory] > 0 {
			if s.group.onlySpreads(s.class) {
				rests = append(rests, s.leaveGroup())
			}
			l.evict(s, "its node has less memory than planned", true, now)
		}
	}
	for _, g := range rests {
		l.openGroup(g)
	}
}

// onlySpreads reports whether all pods of the group are of class c, and only a topology spread makes them depend on each other.
func (g *group) onlySpreads(c *class) bool {
	if g == nil || c.Pod == nil || c.Request != "" || ofGang(c.Class) || slices.ContainsFunc(g.slots, func(s *slot) bool { return s.class != c || s.owner != "" }) {
		return false
	}
	a := c.Pod.Spec.Affinity
	return a == nil || a.PodAffinity == nil || len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0
}

func waitReason(s *slot) string {
	if err := s.waits(); err != nil {
		return err.Error()
	}
	if s.group != nil {
		for _, o := range s.group.slots {
			if o.waits() != nil {
				return "other nodes of its plan are being launched: pods that depend on each other by topology spread or affinity start together"
			}
		}
	}
	return "the other pods of its plan are placed first"
}

// openNode makes slots ready after their node has changed.
func (l *Ledger) openNode(n *node) {
	l.recall(n)
	touched := map[*class]bool{}
	var groups []*group
	for _, s := range n.slots {
		switch {
		case s.group != nil:
			if !slices.Contains(groups, s.group) {
				groups = append(groups, s.group)
			}
		case !s.ready && !s.behind && s.waits() == nil:
			s.set(true)
			touched[s.class] = true
		}
	}
	for _, g := range groups {
		l.openGroup(g)
	}
	for _, s := range slices.Clone(n.slots) { // in the order of the node's slots
		if touched[s.class] {
			delete(touched, s.class)
			l.open(s.class)
		}
	}
	l.tell(n)
}

// openGroup makes all slots of a group ready, or none.
func (l *Ledger) openGroup(g *group) {
	for _, s := range g.slots {
		if !s.ready && s.waits() != nil {
			return
		}
	}
	touched := []*class{}
	for _, s := range g.slots {
		if !s.ready {
			s.set(true)
			if !slices.Contains(touched, s.class) {
				touched = append(touched, s.class)
			}
		}
	}
	for _, c := range touched {
		l.open(c)
	}
}

// open opens the gates of as many waiting pods of the class as there are ready slots.
func (l *Ledger) open(c *class) {
	for len(c.free) > len(c.open) && len(c.waiting) > 0 {
		p := c.waiting[0]
		c.waiting = c.waiting[1:]
		l.become(p, Open)
		p.why, p.until = "", time.Time{}
		l.out.Activate = append(l.out.Activate, p.ref)
	}
}

// ClaimGone records that the claim has ended, or will, without providing the capacity reserved on it. Its slots are dropped and their
// pods planned again, together with the pods of their groups that were not opened yet. exhausted: the cloud had no capacity. That
// counts as no failure: the offerings are remembered as unavailable, so the next plan is a different one, and it is made at once.
func (l *Ledger) ClaimGone(claim, why string, exhausted bool, now time.Time) {
	n, ok := l.nodes[claim]
	if !ok {
		return
	}
	n.launched = true // so that tidy doesn't cancel the claim, which has ended already
	for _, c := range n.took {
		l.class(c).lose(why, now)
	}
	if !exhausted {
		for _, s := range n.slots {
			s.class.recordFailure(now)
		}
		n.failChunks(now)
	}
	l.lose(n, why, exhausted, now)
	l.leave(n)
	if n.name == "" || l.byName[n.name] != n {
		return
	}
	delete(l.byName, n.name)
	if n.cached {
		// The Node object exists a little longer, perhaps without a taint that keeps pods off. As long as it does, the ledger lets no pod go there.
		left := &node{key: n.name, name: n.name, arrival: n.arrival, providerID: n.machine(), cached: true, status: n.status, fenced: true, closed: true,
			reserved: map[int32]capacity.Resources{}, meant: map[capacity.ClassKey]*capacity.Class{}}
		l.nodes[n.name], l.byName[n.name] = left, left
		l.everyNode.Add(left)
	}
}

func (l *Ledger) lose(n *node, why string, blameless bool, now time.Time) {
	for _, s := range slices.Clone(n.slots) {
		l.evict(s, why, blameless, now)
	}
	l.loseChunks(n)
	l.tidy(n)
}

// evict drops a slot whose capacity won't become available, and plans for its pod again: if blameless at once, otherwise after its back-off.
func (l *Ledger) evict(s *slot, why string, blameless bool, now time.Time) {
	if slices.Index(s.node.slots, s) < 0 {
		return // dropped with its group already
	}
	g, c, p := s.group, s.class, s.pod
	wasReady, owner := s.ready, s.owner
	l.unready(s)
	if p == nil {
		p = s.pod
	}
	s.leaveGroup() // first: otherwise the rest could look complete without it and be opened instead of planned again
	l.drop(s)
	l.loseBooked(owner, s, why)
	switch {
	case owner != "" || p != nil && p.state == Assumed:
	case p != nil && p.slot == nil && p.state == Open:
		l.requeue(p, why, blameless, now)
	default:
		// One pod's entitlement ends with the slot: that of the last waiting pod, which would have waited longest anyway.
		if k := len(c.waiting); k > 0 {
			p := c.waiting[k-1]
			c.waiting = c.waiting[:k-1]
			l.requeue(p, why, blameless, now)
		}
	}
	l.open(c)
	if g != nil && !wasReady {
		for _, o := range slices.Clone(g.slots) {
			if !o.ready {
				l.evict(o, why, blameless, now)
				if n := o.node; len(n.slots) == 0 && n.launched {
					n.unneededSince = now
				}
			}
		}
	}
}

func (l *Ledger) requeue(p *pod, why string, blameless bool, now time.Time) {
	p.slot = nil
	l.become(p, Unknown)
	if blameless {
		l.queue(p, now)
		return
	}
	l.again(p, why, now)
}

// Tick ends what has reached its time limit: closed gates, reservations for owners, back-offs, waits for nodes that don't register. A
// caller that must not hold its lock for so long calls TickPods, TickClasses and TickNodes itself, each until it returns false.
func (l *Ledger) Tick(now time.Time) {
	for l.TickPods(now) {
	}
	for l.TickClasses(now) {
	}
	for l.TickNodes(now) {
	}
}

// TickPods is the part of Tick that is about pods. more: it has not looked at all pods yet.
func (l *Ledger) TickPods(now time.Time) (more bool) {
	if l.everyPod.Begins() {
		l.round, l.next = l.next, anew{}
		if l.round.freed {
			l.recallAllUnknown()
		}
		l.recallApart()
	}
	var due []*pod // those for which any of the calls below has work: usually few; each piece of 5,000 pods takes a millisecond or two
	more = l.everyPod.Next(5_000, func(p *pod) bool {
		l.planAnew(p)
		if !p.removed && l.due(p, now) {
			due = append(due, p)
		}
		return !p.removed
	})
	l.gatesEnd(due, now)
	l.overdue(due, now)
	l.awaken(due, now)
	l.endWaitsForSiblings(due, now)
	for p := range l.among(due, func(p *pod) bool { return p.state == Refused && !p.retry.IsZero() && !now.Before(p.retry) }) {
		l.queue(p, now)
	}
	return more
}

// due reports whether TickPods may have something to do for a pod.
func (l *Ledger) due(p *pod, now time.Time) bool {
	switch {
	case p.behind || !p.wake.IsZero() && !now.Before(p.wake):
		return true
	case p.state == Planned:
		return now.Sub(p.since) > l.patience.Gate
	case p.state == Open:
		return p.until.IsZero() || now.After(p.until)
	}
	return p.state == Refused && !p.retry.IsZero() && !now.Before(p.retry)
}

// TickClasses is the part of Tick that is about classes. more: it has not looked at all classes yet.
func (l *Ledger) TickClasses(now time.Time) (more bool) {
	return l.everyClass.Next(5_000, func(c *class) bool {
		if c.gone {
			return false
		}
		l.catchUp(c, now)
		if c.failed > 0 && now.Sub(c.next) > backoff.Longest {
			c.failed, c.next = 0, time.Time{}
			l.forget(c)
		}
		if c.lost > 0 && now.Sub(c.rest) > lostMemory {
			c.lost, c.rest = 0, time.Time{}
			l.forget(c)
		}
		return !c.gone
	})
}

// TickNodes is the part of Tick that is about nodes. more: it has not looked at all nodes yet.
func (l *Ledger) TickNodes(now time.Time) (more bool) {
	expired := func(s *slot) bool { return s.owner != "" && !now.Before(s.until) }
	isDue := func(n *node) bool {
		return !n.daemonsEnd.IsZero() || !n.unneededSince.IsZero() || slices.ContainsFunc(n.slots, expired)
	}
	var due []*node
	more = l.everyNode.Next(2_000, func(n *node) bool {
		if l.nodes[n.key] != n {
			return false
		}
		n.late = n.late || n.launched && !n.launchedAt.IsZero() && !n.status.Registered && now.Sub(n.launchedAt) > l.lateAfter(n)
		if isDue(n) {
			due = append(due, n)
		}
		return true
	})
	for n := range l.amongNodes(due, isDue) {
		for _, s := range slices.Clone(n.slots) {
			if expired(s) {
				l.loseBooked(s.owner, s, "its reservation was not extended")
				l.drop(s)
			}
		}
		if !n.daemonsEnd.IsZero() && !now.Before(n.daemonsEnd) && len(n.daemons) > 0 {
			n.daemons, l.next.freed = nil, true
			l.tidy(n)
		}
		l.endUnneeded(n, now)
	}
	return more
}

// gatesEnd opens the gates of pods whose node has not become usable in time. The scheduler tries them on the nodes that are there.
func (l *Ledger) gatesEnd(due []*pod, now time.Time) {
	startup := map[*class]bool{} // whether pods of the class wait for a node that is Ready except for its startup taints
	for p := range l.among(due, func(p *pod) bool { return p.state == Planned && now.Sub(p.since) > l.patience.Gate }) {
		wait, looked := startup[p.class]
		if !looked {
			wait = p.class.waitsForTaints()
			startup[p.class] = wait
		}
		if wait && now.Sub(p.since) <= l.patience.Gate+l.patience.Startup {
			continue
		}
		// Planning again would buy a node each time. This node may still register, and other capacity may become free.
		why := fmt.Sprintf("its node has not become usable within %v: %s", l.patience.Gate, l.Explain(p.ref.UID))
		s := p.class.spare(false) // the slot that release is going to drop
		freed := l.next.freed || s != nil && s.behind && s.waits() == nil
		l.release(p)
		l.next.freed = freed // a slot that never became usable frees nothing for others
		l.refuse(p, why, now)
		if s != nil && s.node.cached && s.node.status.Initialized {
			// The node is good for other pods, but a driver hasn't published what this one needs. Without a retry time another node would
			// be bought for it each time capacity becomes free, and it would wait there in vain, too.
			p.retry, p.broken = now.Add(l.patience.Gate), true
			if !s.behind {
				l.waitedInVain(s.node, p, why)
			}
		}
		l.out.Words = append(l.out.Words, Word{p.ref, why})
	}
}

// unneededFor is how long other pods may be planned on a node whose own plan was given up.
const unneededFor = 10 * time.Second

// endUnneeded ends an instance that was launched for a group of pods that start together or not at all, when the group was given up and
// no other pod uses it. Until its kubelet registers nothing is lost with it. The request is repeated until the claim is gone.
func (l *Ledger) endUnneeded(n *node, now time.Time) {
	switch {
	case n.unneededSince.IsZero():
	case n.endRequested: // nothing may go there any more, so it has to end
		if now.Sub(n.unneededSince) >= unneededFor {
			n.unneededSince = now
			l.out.End = append(l.out.End, n.claim)
		}
	case !n.idle() || n.used || n.status.Registered || n.claim == "":
		n.unneededSince = time.Time{}
	case len(l.assumed[n.name]) > 0: // a pod is being bound there; wait for the result
	case now.Sub(n.unneededSince) >= unneededFor:
		n.unneededSince, n.fenced, n.endRequested = now, true, true
		l.out.End = append(l.out.End, n.claim)
	}
}

// Explain returns what a pod waits for, or why it was refused; "" for a pod that doesn't wait for the ledger.
func (l *Ledger) Explain(uid types.UID) string {
	p, ok := l.pods[uid]
	if !ok {
		return ""
	}
	if p.state == Planned {
		i := slices.Index(p.class.waiting, p)
		for _, s := range p.class.slots {
			if !s.ready && s.pod == nil && s.owner == "" {
				if i == 0 {
					return waitReason(s)
				}
				i--
			}
		}
	}
	return p.why
}

var stateNames = [...]string{"unknown", "queued", "planned", "open", "assumed", "refused"}

func (s State) String() string { return stateNames[s] }

// Replan drops one slot of the pod's class on a claim's node, because the node has turned out not to suit the pod, and plans for the pod
// again.
func (l *Ledger) Replan(uid types.UID, claim, why string, now time.Time) {
	p, n := l.pods[uid], l.nodes[claim]
	if p == nil || n == nil || p.state != Planned {
		return
	}
	for _, s := range slices.Backward(n.slots) {
		if s.class == p.class && s.pod == nil && s.owner == "" && !s.ready {
			i := slices.Index(p.class.waiting, p)
			p.class.waiting = slices.Delete(p.class.waiting, i, i+1)
			l.become(p, Unknown)
			l.drop(s)
			l.again(p, why, now)
			return
		}
	}
}
