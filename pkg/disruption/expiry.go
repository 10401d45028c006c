package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
)

const (
	// leadMost is how long before its time is over the replacement of a node begins: long enough for another node to boot. Nodes that live
	// for less than four times that long are replaced in the last quarter of their life.
	leadMost = 10 * time.Minute
	// replaceEvery is how often a pass checks whether the replacement capacity is there.
	replaceEvery = 2 * time.Second
	// stayMost: a node whose replacement begins within this time is not a target for the pods of another node that is being replaced,
	// because they would soon be moved again. For nodes that live for less than four times that long it is a quarter of their life.
	stayMost = time.Hour
)

// Replacements plans capacity for the pods of nodes that have to go.
type Replacements interface {
	// Replace asks for capacity for these pods on other nodes, as if they had already left theirs. It returns at once. ready means that all
	// of it is available on initialized nodes; otherwise why says what is missing, or is empty while nodes are being launched. When called
	// again, it plans for what is missing. avoid lists nodes that the pods would soon have to leave again.
	Replace(node string, moving []*corev1.Pod, avoid []string) (ready bool, why string)
	// Keep extends the reservations for the pods that will replace these by another minute.
	Keep(node string)
	// Forget releases what is left of the reservations.
	Forget(node string)
}

// replacedNode is a node that is being replaced, from its cordon until its claim is gone:
//
//	open --lead before its time is over--> cordoned, capacity asked for --it is there, or time is over--> deleted, draining --> gone
//	  ^__________________________ pool paused __________________________|
type replacedNode struct {
	node string
	said string // what was last missing for its replacement
}

// expire terminates the nodes whose time is over. Capacity for their pods is prepared before that, so that a drain moves pods to nodes that
// exist; if it isn't there in time, they are drained all the same. It returns when to run again (0: nothing is near). Disruption budgets
// don't limit this, and neither do pods that ask not to be disrupted: the drain waits for those.
func (c *Controller) expire(ctx context.Context, s *survey) (soon time.Duration, errs []error) {
	now := c.clock.Now()
	there := map[string]bool{}
	var due []expiringNode
	var short []string // nodes that will soon be replaced themselves
	for _, m := range s.machines {
		uid := string(m.claim.UID)
		there[uid] = true
		d := c.leaving[uid]
		x, goes := c.over(m)
		if goes && m.node != nil && (x.forced || !paused(m)) && !now.Before(x.brief) {
			short = append(short, m.node.Name)
		}
		switch {
		case m.claim.DeletionTimestamp != nil || c.going[uid]:
			if d != nil {
				c.replace.Keep(d.node)
			}
		case !goes || paused(m) && !x.forced:
			errs = append(errs, c.cancelReplacement(ctx, m))
		case now.Before(x.from):
			soon = nearer(soon, x.from.Sub(now))
		default:
			due = append(due, expiringNode{m, x})
		}
	}
	for uid, d := range c.leaving {
		if !there[uid] {
			c.replace.Forget(d.node)
			delete(c.leaving, uid)
		}
	}
	slices.SortFunc(due, func(a, b expiringNode) int {
		if d := a.at.Compare(b.at); d != 0 {
			return d
		}
		return strings.Compare(a.claim.Name, b.claim.Name)
	})
	for _, m := range due {
		wait, err := c.leave(ctx, m, short, now)
		soon = nearer(soon, wait)
		errs = append(errs, err)
	}
	return soon, errs
}

// exit is the schedule of a node's replacement: from brief on it accepts no pods of other nodes that are being replaced, from from on
// capacity for its own pods is prepared elsewhere, and at at it is drained, whether that capacity exists or not.
type exit struct {
	brief, from, at time.Time
	// reason is for metrics, why for texts.
	reason, why string
	// forced: the cloud ends the instance anyway, so neither brake nor pause apply.
	forced bool
}

// expiringNode is a node that has to be replaced.
type expiringNode struct {
	*machine
	exit
}

// over returns when and why the node's time is over: the cloud takes its instance back, its expireAfter is over, or its capacity block
// ends. false: never, or not before it is initialized. Otherwise a node that takes longer to boot than it may live would be terminated
// before it was of any use, and so would the next one.
func (c *Controller) over(m *machine) (exit, bool) {
	if x, ok := interrupted(m); ok {
		return x, true
	}
	if condition(m.claim, karpv1.ConditionTypeInitialized) == nil {
		return exit{}, false
	}
	reason := reasonBlockEnds
	at, why, ok := c.taken(m.claim)
	if d := m.claim.Spec.ExpireAfter.Duration; d != nil && *d > 0 {
		// In a dry run a node whose expireAfter is over stays, but EC2 ends it all the same when its capacity block does.
		if expires := m.claim.CreationTimestamp.Add(*d); !ok || expires.Before(at) && !c.dryRun {
			at, reason, why, ok = expires, reasonExpired, "its expireAfter is over", true
		}
	}
	quarter := at.Sub(m.claim.CreationTimestamp.Time) / 4
	from := at.Add(-min(leadMost, quarter))
	return exit{brief: from.Add(-min(stayMost, quarter)), from: from, at: at, reason: reason, why: why}, ok
}

// leave advances the replacement of one expiring node and returns when to do so again:
//
//  1. Before its time is over: do nothing if it has no pods to be moved (emptiness may terminate it); otherwise
//  2. cordon and taint it, and ask for capacity for its pods.
//  3. When the capacity is there, or the time over, delete its claim, as soon as the brake allows.
//
// A dry run covers what this package decides. It doesn't cover instances that the cloud ends: those would end undrained.
func (c *Controller) leave(ctx context.Context, m expiringNode, short []string, now time.Time) (time.Duration, error) {
	if m.reason == reasonExpired && c.dry(ctx, m.machine, m.reason, m.why) {
		return 0, nil
	}
	if now.Before(m.at) {
		ready, err := c.makeRoom(ctx, m, short, now)
		if !ready || err != nil {
			return min(replaceEvery, m.at.Sub(now)), err
		}
	} else if d := c.leaving[string(m.claim.UID)]; d != nil && d.said != "" {
		c.recorder.Eventf(m.claim, nil, corev1.EventTypeWarning, reasonNoRoom, "Disrupt", "Draining without replacement capacity for all pods: %s", d.said)
	}
	if !m.forced && (c.braked(m.machine) || !c.brake.Take(now)) {
		return c.brake.Wait(now), nil
	}
	return 0, c.end(ctx, m.machine, m.reason, m.why)
}

// makeRoom cordons the node and asks for capacity for its pods. It returns true when the node may be drained.
func (c *Controller) makeRoom(ctx context.Context, m expiringNode, short []string, now time.Time) (bool, error) {
	uid := string(m.claim.UID)
	d := c.leaving[uid]
	if c.replace == nil || m.node == nil || m.node.DeletionTimestamp != nil || m.node.Labels[karpv1.NodeInitializedLabelKey] != "true" ||
		m.pool != nil && m.pool.Spec.Replicas != nil { // the launch controller keeps the pool at its replicas
		return false, nil
	}
	bound, err := pods.OnNode(c.pods.GetIndexer(), m.node.Name)
	if err != nil {
		return false, err
	}
	moving := slices.DeleteFunc(bound, func(p *corev1.Pod) bool { return !moves(p, now) })
	if d == nil {
		if len(moving) == 0 || !c.fence.Fence(m.node.Name) {
			return false, nil
		}
		d = &replacedNode{node: m.node.Name}
		c.leaving[uid] = d
		c.tell(m.machine, reasonReplace, fmt.Sprintf("The node is drained by %s because %s: capacity for its pods (%d) is being prepared", m.at.UTC().Format(time.RFC3339), m.why, len(moving)))
		klog.FromContext(ctx).V(2).Info("Replacing a node", "node", klog.KObj(m.node), "nodeClaim", m.claim.Name, "pods", len(moving), "reason", m.reason)
	}
	if !disrupted(m.node) {
		if err := c.nodes.Disrupt(ctx, m.node); err != nil {
			return false, fmt.Errorf("tainting a node that is being replaced: %w", err)
		}
	}
	if len(moving) == 0 {
		return true, nil
	}
	ready, why := c.replace.Replace(m.node.Name, moving, short)
	if why != d.said && why != "" {
		c.recorder.Eventf(m.claim, nil, corev1.EventTypeWarning, reasonNoRoom, "Disrupt", "No replacement capacity for the pods of the node yet: %s", why)
	}
	d.said = why
	return ready, nil
}

// moves reports whether a drain evicts the pod and its controller will create another one, which needs capacity.
func moves(p *corev1.Pod, now time.Time) bool {
	return pods.Evictable(p, now) && !pods.Daemon(p) && metav1.GetControllerOfNoCopy(p) != nil
}

// cancelReplacement undoes what leave has begun.
func (c *Controller) cancelReplacement(ctx context.Context, m *machine) error {
	uid := string(m.claim.UID)
	d := c.leaving[uid]
	if d == nil {
		return nil
	}
	c.replace.Forget(d.node)
	if m.node != nil {
		if err := c.nodes.Undisrupt(ctx, m.node); err != nil {
			return fmt.Errorf("uncordoning Node %s: %w", m.node.Name, err)
		}
	}
	c.fence.Unfence(d.node)
	delete(c.leaving, uid)
	return nil
}

// nearer returns the shorter of two waits; 0 is no wait.
func nearer(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
