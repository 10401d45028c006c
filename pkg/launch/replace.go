package launch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// moveHold is how long replacement capacity stays reserved after the last request for it.
	moveHold = time.Minute
	// moveTries bounds how often replacement capacity is planned for one node's pods, so that nodes that never register aren't launched
	// again and again; firstMoveRetry is the back-off after the first try, doubled each time.
	moveTries      = 4
	firstMoveRetry = 15 * time.Second
)

// move is a node whose pods get capacity elsewhere before it is drained.
type move struct {
	pods  []*corev1.Pod // the pods at the last request
	avoid []string      // the nodes to avoid, likewise
	asked bool          // since the last try
	tries int
	next  time.Time // no retry before
	why   string    // what was missing at the last try
}

// Replace asks for capacity for the pods of a node that has to go, as if they had already left it. It reports whether all of it is
// available on initialized nodes; otherwise why says what is missing, or is "" while nodes are being launched. It returns at once. The
// capacity is reserved by owner and class, for the pods that the owners will create as replacements. The caller has to call Replace or Keep
// repeatedly until those exist. avoid lists nodes that will be gone soon themselves: no capacity is planned there.
func (m *Launcher) Replace(node string, pods []*corev1.Pod, avoid []string) (ready bool, why string) {
	wanted, problem := m.successors(pods)
	now := m.clock.Now()
	var held map[ledger.Successor]int
	up, total := 0, 0
	m.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Extend(node, now.Add(moveHold))
		held, up = l.Held(node)
	})
	for _, n := range held {
		total += n
	}
	m.mu.Lock()
	mv := m.moves[node]
	if mv == nil {
		mv = &move{}
		m.moves[node] = mv
	}
	mv.pods, mv.avoid = pods, avoid
	complete := len(missing(wanted, held)) == 0
	mv.asked = !complete && mv.tries < moveTries && !now.Before(mv.next)
	try := mv.asked
	why = cmp.Or(problem, mv.why)
	m.mu.Unlock()
	switch {
	case complete:
		return up == total && problem == "", problem
	case try:
		m.replan()
	}
	return false, why
}

// Keep extends the reservations that Replace has made.
func (m *Launcher) Keep(node string) {
	m.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Extend(node, now.Add(moveHold)) })
}

// Forget releases what is left of the reservations that Replace has made.
func (m *Launcher) Forget(node string) {
	m.mu.Lock()
	delete(m.moves, node)
	m.mu.Unlock()
	m.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Release(node) })
}

// successors returns the pods that will replace these, by owner and class; problem says why capacity can't be planned for one of them.
func (m *Launcher) successors(pods []*corev1.Pod) (out map[ledger.Successor][]*corev1.Pod, problem string) {
	out = map[ledger.Successor][]*corev1.Pod{}
	for _, pod := range pods {
		if err := m.mayLaunch(pod.Namespace); err != nil {
			problem = fmt.Sprintf("pod %s: %v", klog.KObj(pod), err)
			continue
		}
		next, class, err := m.pending.classes.successor(pod)
		if err != nil {
			problem = fmt.Sprintf("pod %s: %v", klog.KObj(pod), err)
			continue
		}
		key := ledger.Successor{Owner: objects.Controller(pod), Class: class.Key}
		out[key] = append(out[key], next)
	}
	return out, problem
}

// missing returns the pods for whose successors no capacity is reserved, in no particular order.
func missing(wanted map[ledger.Successor][]*corev1.Pod, held map[ledger.Successor]int) (out []*corev1.Pod) {
	for key, pods := range wanted {
		out = append(out, pods[min(held[key], len(pods)):]...)
	}
	return out
}

// relocate plans capacity for the pods of all nodes that have to go, where it is missing:
//
//  1. Take a view in which these pods have left, and in which their nodes accept no pods.
//  2. Plan and verify their successors like any other demand.
//  3. Reserve what was found for the owners, and launch what has to be bought.
func (m *Launcher) relocate(ctx context.Context) {
	moves := m.movesDue()
	if len(moves) == 0 || m.hold() != "" || m.claims.Problem() != "" {
		return
	}
	logger := klog.FromContext(ctx)
	leaving := map[types.UID]string{} // pods without new capacity, and the node they leave
	pods := map[types.UID]*corev1.Pod{}
	var waiting []ledger.Waiting
	for _, node := range slices.Sorted(maps.Keys(moves)) {
		var held map[ledger.Successor]int
		m.reservations.read(func(l *ledger.Ledger) { held, _ = l.Held(node) })
		wanted, _ := m.successors(moves[node])
		for _, pod := range missing(wanted, held) {
			_, class, _ := m.pending.classes.successor(pod) // it had a class a moment ago
			leaving[pod.UID], pods[pod.UID] = node, pod
			waiting = append(waiting, ledger.Waiting{Ref: refOf(pod), Class: class})
		}
	}
	if len(waiting) == 0 {
		return
	}
	slices.SortFunc(waiting, func(a, b ledger.Waiting) int { return compare(a.Ref.UID, b.Ref.UID) })
	v, plan, err := m.decideMoves(ctx, waiting, pods)
	if err != nil {
		if ctx.Err() == nil {
			logger.Error(err, "No capacity could be planned for the pods of nodes that have to go")
		}
		m.tellMoves(leaving, func(types.UID) string { return err.Error() })
		return
	}
	claims := m.reserve(plan, len(v.inFlight), buying{urgent: true, pod: func(uid types.UID) *corev1.Pod { return pods[uid] }})
	refused := map[types.UID]string{}
	for _, r := range plan.Refused {
		for _, ref := range r.Pods {
			refused[ref.UID] = r.Message
		}
	}
	from := make([]string, len(plan.Placements))
	for i := range plan.Placements {
		pl := &plan.Placements[i]
		from[i] = leaving[pl.Pod.UID]
		pl.Owner, pl.Pod = objects.Controller(pods[pl.Pod.UID]), capacity.PodRef{}
	}
	batches := m.bookAs(ctx, v, plan, claims, func(l *ledger.Ledger, id string, placements []capacity.Placement, now time.Time) {
		l.Move(id, placements, from, now.Add(moveHold), now)
	})
	m.tellMoves(leaving, func(uid types.UID) string { return refused[uid] })
	logger.V(2).Info("Planned capacity for pods of nodes that have to go", "nodes", len(moves), "pods", len(waiting), "placed", len(plan.Placements),
		"newNodes", len(plan.Nodes), "dollarsPerHour", plan.CostPerHour)
	for _, w := range batches {
		m.wg.Go(func() { m.launch(ctx, w) })
	}
}

// movesDue returns the nodes for whose pods capacity is to be planned now. Once a node is drained Replace is no longer called for it: the
// new pods use up the reservations, and what then looks missing isn't.
func (m *Launcher) movesDue() map[string][]*corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]*corev1.Pod{}
	for node, mv := range m.moves {
		if mv.asked {
			out[node] = mv.pods
			mv.asked = false
		}
	}
	return out
}

// tellMoves records for each node what was missing in this try.
func (m *Launcher) tellMoves(leaving map[types.UID]string, why func(types.UID) string) {
	now := m.clock.Now()
	tried := map[string]bool{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(leaving)) {
		mv := m.moves[leaving[uid]]
		if mv == nil {
			continue
		}
		if !tried[leaving[uid]] {
			tried[leaving[uid]] = true
			mv.why, mv.next = "", now.Add(firstMoveRetry<<mv.tries)
			mv.tries++
		}
		mv.why = cmp.Or(mv.why, why(uid))
	}
}

// decideMoves makes a verified plan in a view without the pods of nodes that have to go.
func (m *Launcher) decideMoves(ctx context.Context, waiting []ledger.Waiting, pods map[types.UID]*corev1.Pod) (*view, *capacity.Plan, error) {
	v, err := m.view(ctx, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("taking a view of the cluster: %w", err)
	}
	v.Demand = demand(waiting)
	m.depart(v)
	pod := func(uid types.UID) *corev1.Pod { return pods[uid] }
	opts := m.cfg.Plan
	forbidden, held := m.spending.restrict(v, pod, nil)
	opts.Forbidden = append(slices.Clone(opts.Forbidden), forbidden...)
	d := Decider{Planner: m.planner, World: m.world, Nodes: m.nodes, Pod: pod, Patience: DefaultPatience, Clock: m.clock, memory: m.refused}
	plan, err := d.Decide(ctx, &v.Scene, opts)
	if err != nil {
		return nil, nil, fmt.Errorf("the plan could not be verified: %w", err)
	}
	plan.Refused = append(plan.Refused, held...)
	return v, plan, nil
}

// depart changes the view and what the filters see: the pods that move are gone from the nodes that have to go, their other pods stay, and
// the disrupted taint keeps all other pods off. Nodes to avoid accept no pods.
func (m *Launcher) depart(v *view) {
	gone := map[string]map[types.UID]bool{}
	avoid := map[string]bool{}
	m.mu.Lock()
	for node, mv := range m.moves {
		gone[node] = map[types.UID]bool{}
		for _, pod := range mv.pods {
			gone[node][pod.UID] = true
		}
		for _, name := range mv.avoid {
			avoid[name] = true
		}
	}
	m.mu.Unlock()
	objects := map[string]*corev1.Node{}
	m.world.Nodes(func(n *capacity.Node, o *corev1.Node) *capacity.Node {
		if gone[n.Name] != nil {
			objects[n.Name] = o
		}
		return n
	})
	for i, n := range v.Nodes {
		o := objects[n.Name]
		if o == nil && !avoid[n.Name] {
			continue
		}
		left := *n
		left.Closed = true
		if o == nil {
			v.Nodes[i] = &left
			continue
		}
		left.Pods = slices.DeleteFunc(slices.Clone(n.Pods), func(p *corev1.Pod) bool { return gone[n.Name][p.UID] })
		v.Nodes[i] = &left
		o = o.DeepCopy()
		o.Spec.Taints = append(slices.DeleteFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintDisrupted }),
			corev1.Taint{Key: taintDisrupted, Effect: corev1.TaintEffectNoSchedule})
		v.Hypothetical = append(v.Hypothetical, capacity.TrialNode{Node: o, Pods: left.Pods, Instead: true})
	}
}
