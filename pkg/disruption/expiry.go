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
	// stayMost is how long before a node begins to be replaced it is no place any more for the pods of another that is being
	// replaced: they would soon be moved again. For nodes that live for less than four times that long it is a quarter of their time.
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

// departure is a node that is being replaced, from the moment it is closed until its claim is gone:
//
//	open --lead before its time is over--> closed, room asked for --room is there, or time is over--> deleted, draining --> gone
//	  ^__________________________ pool paused _______________________|
type departure struct {
	node string
	said string // what last stood in the way of its replacement
}

// expire ends the machines whose time is over. Room for their pods is made before that, so that a drain moves pods to nodes
// that are there; when it can't be made in time, they are drained all the same. It returns when to look again (0: nothing
// is near). Budgets don't hold this back, nor do pods that ask not to be disturbed: the drain waits for those.
func (c *Controller) expire(ctx context.Context, s *survey) (soon time.Duration, errs []error) {
	now := c.clock.Now()
	there := map[string]bool{}
	var due []*machine
	var short []string // nodes that will not stay for long
	for _, m := range s.machines {
		uid := string(m.claim.UID)
		there[uid] = true
		d := c.leaving[uid]
		at, _, expires := c.over(m)
		if expires && m.node != nil && !paused(m) && !now.Before(at.Add(-lead(m, at)-brief(m, at))) {
			short = append(short, m.node.Name)
		}
		switch {
		case m.claim.DeletionTimestamp != nil || c.going[uid]:
			if d != nil {
				c.replace.Keep(d.node)
			}
		case !expires || paused(m):
			errs = append(errs, c.stay(ctx, m))
		case now.Before(at.Add(-lead(m, at))):
			soon = nearer(soon, at.Add(-lead(m, at)).Sub(now))
		default:
			due = append(due, m)
		}
	}
	for uid, d := range c.leaving {
		if !there[uid] {
			c.replace.Forget(d.node)
			delete(c.leaving, uid)
		}
	}
	slices.SortFunc(due, func(a, b *machine) int {
		x, _, _ := c.over(a)
		y, _, _ := c.over(b)
		if d := x.Compare(y); d != 0 {
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

// over is when the machine's time is over, and why: its expireAfter, or the end of the capacity it runs on. false: never, or
// not as long as it is coming up. A node that takes longer to boot than it may live would otherwise be ended before it was of any use, and the
// next one too.
func (c *Controller) over(m *machine) (at time.Time, why string, ok bool) {
	if condition(m.claim, karpv1.ConditionTypeInitialized) == nil {
		return time.Time{}, "", false
	}
	at, why, ok = c.taken(m.claim)
	if d := m.claim.Spec.ExpireAfter.Duration; d != nil && *d > 0 {
		if expires := m.claim.CreationTimestamp.Add(*d); !ok || expires.Before(at) {
			return expires, "its expireAfter is over", true
		}
	}
	return at, why, ok
}

// lead is how long before its end the machine begins to be replaced.
func lead(m *machine, at time.Time) time.Duration {
	return min(leadMost, at.Sub(m.claim.CreationTimestamp.Time)/4)
}

// brief is how long before that it takes no pods of others that are being replaced.
func brief(m *machine, at time.Time) time.Duration {
	return min(stayMost, at.Sub(m.claim.CreationTimestamp.Time)/4)
}

// leave brings one expiring machine a step further and says when to look again:
//
//  1. Before its time is over: nothing if it has no pods to be moved (emptiness may end it), else
//  2. it is closed, by fence and taint, and room for its pods is asked for.
//  3. When the room is there, or the time over, its claim is deleted. The brake comes before punctuality.
func (c *Controller) leave(ctx context.Context, m *machine, short []string, now time.Time) (time.Duration, error) {
	at, why, _ := c.over(m)
	if c.dry(ctx, m, reasonExpired, why) {
		return 0, nil
	}
	if now.Before(at) {
		ready, err := c.makeRoom(ctx, m, short, now)
		if !ready || err != nil {
			return min(replaceEvery, at.Sub(now)), err
		}
	} else if d := c.leaving[string(m.claim.UID)]; d != nil && d.said != "" {
		c.recorder.Eventf(m.claim, nil, corev1.EventTypeWarning, reasonNoRoom, "Disrupt", "Draining without new room for all pods: %s", d.said)
	}
	if c.braked(m) || !c.brake.Take(now) {
		return c.brake.Wait(now), nil
	}
	return 0, c.end(ctx, m, reasonExpired, why)
}

// makeRoom closes the machine's node and asks for room for its pods; true when the node may go.
func (c *Controller) makeRoom(ctx context.Context, m *machine, short []string, now time.Time) (bool, error) {
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
		d = &departure{node: m.node.Name}
		c.leaving[uid] = d
		at, _, _ := c.over(m)
		c.tell(m, reasonReplace, fmt.Sprintf("Expires at %s: room is being made for its %d pods", at.UTC().Format(time.RFC3339), len(moving)))
		klog.FromContext(ctx).V(2).Info("Replacing an expiring node", "node", klog.KObj(m.node), "nodeClaim", m.claim.Name, "pods", len(moving))
	}
	if !disrupted(m.node) {
		if err := c.nodes.Disrupt(ctx, m.node); err != nil {
			return false, fmt.Errorf("tainting an expiring node: %w", err)
		}
	}
	if len(moving) == 0 {
		return true, nil
	}
	ready, why := c.replace.Replace(m.node.Name, moving, short)
	if why != d.said && why != "" {
		c.recorder.Eventf(m.claim, nil, corev1.EventTypeWarning, reasonNoRoom, "Disrupt", "No new room for the pods of an expiring node yet: %s", why)
	}
	d.said = why
	return ready, nil
}

// moves says that a drain ends the pod and that somebody will make another in its place, which needs room.
func moves(p *corev1.Pod, now time.Time) bool {
	return pods.Evictable(p, now) && !pods.Daemon(p) && metav1.GetControllerOfNoCopy(p) != nil
}

// stay takes back what leave has begun.
func (c *Controller) stay(ctx context.Context, m *machine) error {
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
