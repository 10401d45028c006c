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
	// leadMost is how long before its time is over a node begins to be replaced: long enough for another to boot. Nodes that
	// live for less than four times that long are replaced in the last quarter of their time.
	leadMost = 10 * time.Minute
	// replaceEvery is how often a pass looks whether the new room is there.
	replaceEvery = 2 * time.Second
	// stayMost: a node whose replacement begins within this time is not a target for the pods of another node that is being replaced, because
	// they would soon be moved again. For nodes that live for less than four times that long it is a quarter of their time.
	stayMost = time.Hour
)

// Replacements makes room for the pods of nodes that have to go.
type Replacements interface {
	// Replace asks for room for these pods on other nodes, as if they had left theirs already. It returns at once: ready says
	// that all of it is there, on nodes that are up; otherwise why is what stands in the way, or empty while it is being
	// made. Asked again, it plans for what is missing. avoid are nodes that the pods would soon have to leave again.
	Replace(node string, moving []*corev1.Pod, avoid []string) (ready bool, why string)
	// Keep holds the room for those who will come instead of the pods, for another minute.
	Keep(node string)
	// Forget gives back what is left of it.
	Forget(node string)
}

// replacedNode is a node that is being replaced, from the moment it is closed until its claim is gone:
//
//	open --lead before its time is over--> closed, room asked for --room is there, or time is over--> deleted, draining --> gone
//	  ^__________________________ pool paused _______________________|
type replacedNode struct {
	node string
	said string // what last stood in the way of its replacement
}

// expire ends the machines whose time is over. Room for their pods is made before that, so that a drain moves pods to nodes
// that are there; when it can't be made in time, they are drained all the same. It returns when to look again (0: nothing
// is near). Budgets don't hold this back, nor do pods that ask not to be disturbed: the drain waits for those.
func (c *Controller) expire(ctx context.Context, s *survey) (soon time.Duration, errs []error) {
	now := c.clock.Now()
	there := map[string]bool{}
	var due []expiringNode
	var short []string // nodes that will not stay for long
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

// exit is how a machine leaves: from brief on it takes no pods of others that are being replaced; from from on room is made for its own
// elsewhere; at at it is drained, whether that is there or not.
type exit struct {
	brief, from, at time.Time
	// reason is for metrics, why for people.
	reason, why string
	// forced: the cloud ends it anyway. Neither brake nor pause help it.
	forced bool
}

// expiringNode is a machine whose time has come.
type expiringNode struct {
	*machine
	exit
}

// over is when and why the machine's time is over: the cloud takes it, its expireAfter is over, or the capacity it runs on ends.
// false: never, or not as long as it is coming up. A node that takes longer to boot than it may live would otherwise be ended
// before it was of any use, and the next one too.
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
		// In a dry run a node whose expireAfter is over stays, and EC2 ends it all the same when its capacity block does.
		if expires := m.claim.CreationTimestamp.Add(*d); !ok || expires.Before(at) && !c.dryRun {
			at, reason, why, ok = expires, reasonExpired, "its expireAfter is over", true
		}
	}
	quarter := at.Sub(m.claim.CreationTimestamp.Time) / 4
	from := at.Add(-min(leadMost, quarter))
	return exit{brief: from.Add(-min(stayMost, quarter)), from: from, at: at, reason: reason, why: why}, ok
}

// leave brings one expiring machine a step further and says when to look again:
//
//  1. Before its time is over: nothing if it has no pods to be moved (emptiness may end it), else
//  2. it is closed, by fence and taint, and room for its pods is asked for.
//  3. When the room is there, or the time over, its claim is deleted. The brake comes before punctuality.
//
// A dry run is about what is decided here. That the cloud ends a machine is not: undrained it would end just as well.
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
		c.recorder.Eventf(m.claim, nil, corev1.EventTypeWarning, reasonNoRoom, "Disrupt", "Draining without new room for all pods: %s", d.said)
	}
	if !m.forced && (c.braked(m.machine) || !c.brake.Take(now)) {
		return c.brake.Wait(now), nil
	}
	return 0, c.end(ctx, m.machine, m.reason, m.why)
}

// makeRoom closes the machine's node and asks for room for its pods; true when the node may go.
func (c *Controller) makeRoom(ctx context.Context, m expiringNode, short []string, now time.Time) (bool, error) {
	uid := string(m.claim.UID)
	d := c.leaving[uid]
	if c.replace == nil || m.node == nil || m.node.DeletionTimestamp != nil || m.node.Labels[karpv1.NodeInitializedLabelKey] != "true" ||
		m.pool != nil && m.pool.Spec.Replicas != nil { // whoever keeps the number of its nodes makes the next one
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
			return false, fmt.Errorf("tainting a node that leaves: %w", err)
		}
	}
	if len(moving) == 0 {
		return true, nil
	}
	ready, why := c.replace.Replace(m.node.Name, moving, short)
	if why != d.said && why != "" {
		c.recorder.Eventf(m.claim, nil, corev1.EventTypeWarning, reasonNoRoom, "Disrupt", "No new room for the pods of the node yet: %s", why)
	}
	d.said = why
	return ready, nil
}

// moves says that a drain ends the pod and that somebody will make another in its place, which needs room.
func moves(p *corev1.Pod, now time.Time) bool {
	return pods.Evictable(p, now) && !pods.Daemon(p) && metav1.GetControllerOfNoCopy(p) != nil
}

// cancelReplacement takes back what leave has begun.
func (c *Controller) cancelReplacement(ctx context.Context, m *machine) error {
	uid := string(m.claim.UID)
	d := c.leaving[uid]
	if d == nil {
		return nil
	}
	c.replace.Forget(d.node)
	if m.node != nil {
		if err := c.nodes.Undisrupt(ctx, m.node); err != nil {
			return fmt.Errorf("opening Node %s again: %w", m.node.Name, err)
		}
	}
	c.fence.Unfence(d.node)
	delete(c.leaving, uid)
	return nil
}

// nearer is the shorter of two waits; 0 is no wait.
func nearer(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
