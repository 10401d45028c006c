package disruption

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/budgets"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/nodepods"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/podrules"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/rebalance"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// usedNodes turns managed nodes into candidates for consolidation.
type usedNodes struct {
	bound     nodepods.Reader
	emptiness emptiness
	rules     *podrules.Rules
	price     func(*karpv1.NodeClaim) (dollarsPerHour float64, known bool)
	// received is until when nodes that took pods of a move are no candidates, by name.
	received func(node string) time.Time
	// ending reports whether a node has to end so soon that no pods are to be moved there.
	ending    func(m *candidate, now time.Time) (bool, error)
	unhealthy *unhealthy
	rollOuts  *rollOuts
	reasons   moveReasons
}

// all returns a candidate for each claim with a Node and a pool. occupied returns what else is being done to a node; nil: nothing.
func (u *usedNodes) all(s *cluster, occupied func(*candidate, bool, time.Time) *consolidation.Kept, now time.Time) ([]consolidation.Candidate, error) {
	if err := u.rules.Begin(); err != nil {
		return nil, err
	}
	out := make([]consolidation.Candidate, 0, len(s.candidates))
	for _, m := range s.candidates {
		if m.node == nil || m.pool == nil {
			continue
		}
		bound, err := u.bound.Cached(m.node.Name)
		if err != nil {
			return nil, err
		}
		x := u.candidate(m, bound, now)
		if x.Ending, err = u.endsSoon(m, now); err != nil {
			return nil, err
		}
		x.Blocked = cmp.Or(occupied(m, x.Forced != "", now), x.Blocked)
		out = append(out, x)
	}
	u.rules.End()
	return out, nil
}

// endsSoon reports whether the node has to end so soon, or is empty and will soon be removed for that, that no pods are to be moved there.
func (u *usedNodes) endsSoon(m *candidate, now time.Time) (bool, error) {
	yes, err := u.ending(m, now)
	if yes || err != nil || u.rollOuts.dryRun || !budgets.Any(m.pool.Spec.Disruption.Budgets, u.rollOuts.clock, karpv1.DisruptionReasonEmpty) {
		return yes, err
	}
	d, err := u.emptiness.decide(m, now)
	return d != nil && d.at.Sub(now) < time.Hour, err
}

// candidate returns one candidate, apart from what else is being done to its node.
func (u *usedNodes) candidate(m *candidate, bound []*corev1.Pod, now time.Time) consolidation.Candidate {
	out := consolidation.Candidate{Node: m.node.Name, Pool: m.pool.Name, Price: math.NaN(), CapacityType: m.claim.Labels[karpv1.CapacityTypeLabelKey],
		CreatedAt: m.claim.CreationTimestamp.Time, ReceivedUntil: u.received(m.node.Name)}
	if price, known := u.price(m.claim); known {
		out.Price = price
	}
	for _, r := range u.reasons {
		if since, yes := r.due(m, now); yes {
			out.Forced, out.ForcedAt = r.name(), since
			break
		}
	}
	out.ReturnsAt = rebalance.ReturnsAt(m.claim, m.watched)
	known := u.rules.Look(bound)
	out.Blocked = u.blocked(m, bound, known, out.Forced, now)
	out.Pods = make([]consolidation.Pod, 0, len(known))
	for _, k := range known {
		var class *capacity.Class
		if leaves(m, k.Pod, out.Forced == consolidation.Drifted, now) {
			class, _ = u.rules.Class(k, now)
		}
		switch {
		case class != nil:
			out.Pods = append(out.Pods, consolidation.Pod{Ref: capacity.RefOf(k.Pod), Class: class, Owner: objects.Controller(k.Pod), Cost: pods.Cost(k.Pod), Restart: u.rules.Restart(k)})
		case !objects.Ended(k.Pod) && !pods.Terminating(k.Pod) && !pods.Daemon(k.Pod) && !pods.Mirror(k.Pod):
			out.OtherPods += max(0, pods.Cost(k.Pod))
		}
	}
	out.Drain = u.rules.Drain(known, now)
	return out
}

// blocked returns why a node can't be emptied now, or isn't the business of consolidation; nil: it can.
func (u *usedNodes) blocked(m *candidate, bound []*corev1.Pod, known []*podrules.Pod, forced consolidation.Reason, now time.Time) *consolidation.Kept {
	drifted := forced == consolidation.Drifted
	after := m.pool.Spec.Disruption.ConsolidateAfter.Duration
	sick := u.unhealthy.kept(m)
	switch {
	case !m.initialized():
		return &consolidation.Kept{Kind: consolidation.NotReady, Message: "it isn't initialized"}
	case m.node.DeletionTimestamp != nil:
		return &consolidation.Kept{Kind: consolidation.NotReady, Message: "its Node is being deleted"}
	case sick != nil:
		return sick
	case !objects.Ready(m.node):
		return &consolidation.Kept{Kind: consolidation.NotReady, Message: "its condition Ready isn't True"}
	case m.pool.DeletionTimestamp != nil || after == nil && forced == "":
		return &consolidation.Kept{Kind: consolidation.Disabled}
	case m.pool.Spec.Replicas != nil:
		return &consolidation.Kept{Kind: consolidation.Static}
	case paused(m):
		return &consolidation.Kept{Kind: consolidation.Paused, Message: "NodePool " + m.pool.Name + " has the annotation " + objects.AnnotationPauseDisruption}
	}
	if by := protection(m, bound, now, drifted); by != nil {
		k := &consolidation.Kept{Kind: consolidation.Protected, Name: by.annotation, Until: by.until}
		if by.pod != nil {
			k.Pod = capacity.RefOf(by.pod)
		}
		return k
	}
	if !slices.ContainsFunc(bound, func(p *corev1.Pod) bool { return pods.Occupies(p, now) }) {
		if by := draining(u.rules, m, bound, drifted, now); by != nil {
			return by
		}
		if drifted {
			return &consolidation.Kept{Kind: consolidation.OtherReason, Message: "the node is empty and drifted: it is removed as soon as the pool's disruption budgets allow"}
		}
		if needed, _ := u.emptiness.forBuffers(m); needed {
			return &consolidation.Kept{Kind: consolidation.OtherReason, Message: "the node is empty, and capacity for CapacityBuffers is kept there"}
		}
		return &consolidation.Kept{Kind: consolidation.OtherReason,
			Message: "the node is empty: it is removed when consolidateAfter is over, as soon as the pool's disruption budgets allow"}
	}
	if forced == "" {
		if needed, _ := u.emptiness.forBuffers(m); needed {
			return &consolidation.Kept{Kind: consolidation.OtherReason, Message: "capacity for CapacityBuffers is kept on the node"}
		}
		if quiet := u.emptiness.quietSince(m).Add(*after); now.Before(quiet) {
			if m.pool.Spec.Disruption.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty { // what keeps it also after that
				return &consolidation.Kept{Kind: consolidation.PolicyWhenEmpty}
			}
			return &consolidation.Kept{Kind: consolidation.NotQuiet, Until: quiet}
		}
	}
	if k := u.rules.Unmovable(known, now); k != nil || drifted && hasDeadline(m) {
		return k
	}
	return u.rules.Blocked(known, now)
}
