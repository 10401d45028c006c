package provisioning

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/filterrefusals"
)

// DefaultEffort is how much work the planner spends on a cheaper plan for each burst. A unit takes about a microsecond, so it is a tenth of a
// second of its goroutine, and less for a few pods.
const DefaultEffort = 100_000

// Scene is a view of the cluster with what the verification of a plan needs besides.
type Scene struct {
	capacity.View
	// Hypothetical are nodes that the scheduler's cache doesn't have, or shows otherwise than the filters have to see them (with startup taints, say).
	Hypothetical []capacity.TrialNode
	// Promised are pods with a reservation that the snapshot doesn't show on their node.
	Promised []capacity.Step
}

// defaultPatience is how long a round goes on searching for nodes that the filters accept while demand of other pods waits. What it has
// learned by then is remembered, and the next round continues from there.
const defaultPatience = time.Second

// Planner decides what to buy.
type Planner interface {
	Plan(v *capacity.View, o capacity.Options) *capacity.Plan
}

// Filters are the scheduler's own. Only one goroutine may use them at a time.
type Filters interface {
	Verify(ctx context.Context, t capacity.Trial) ([]capacity.Rejection, error)
}

// Nodes builds the hypothetical Node of a planned node, for the filters.
type Nodes interface {
	PlannedNode(p *capacity.PlannedNode, name string) *corev1.Node
}

// Decider makes plans and verifies them with the scheduler's own filters. It is all there is between a view and a plan that may be bought:
// a dry run uses the same Decider.
type Decider struct {
	Planner Planner
	World   Filters // refreshed since the Scene was taken
	Nodes   Nodes
	// Pod returns the pod as it is now, or nil when it isn't known: then the filters check the Pod of its class instead.
	Pod func(types.UID) *corev1.Pod
	// Patience is how long to go on after the second try with the search for nodes that the filters accept, by Clock. 0: two tries only.
	Patience time.Duration
	Clock    clock.PassiveClock
	// memory holds what the filters have refused in earlier rounds; nil: nothing is remembered.
	memory *filterrefusals.Memory
}

// Decide plans and verifies the plan with the real filters. It forbids the placements that they refuse and plans once more, as long as that
// teaches anything and Patience lasts.
//
// It returns the plan that keeps the most pods once its refused placements are removed. That need not be the last plan: a placement is
// forbidden to every pod of its class, so if two pods can't share a volume, say, the last plan has neither.
func (d *Decider) Decide(ctx context.Context, s *Scene, opts capacity.Options) (*capacity.Plan, error) {
	q := d.newSearch(s, opts)
	var best, last *capacity.Plan
	for {
		plan, rejected, err := q.try(ctx, s, q.opts)
		if err != nil {
			return nil, err
		}
		news := q.learn(plan, rejected)
		if news {
			if err := q.ask(ctx, plan, rejected); err != nil {
				return nil, err
			}
		}
		q.remove(plan, rejected)
		if last = plan; best == nil || better(plan, best) {
			best = plan
		}
		if !news || q.over() {
			break
		}
	}
	q.reword(best, last)
	q.remember(best)
	return best, nil
}

// better reports whether a plan places more pods than another, or as many for less. Of equal plans the first one is kept: it was made with
// the fewest placements forbidden.
func better(plan, than *capacity.Plan) bool {
	if a, b := len(plan.Placements), len(than.Placements); a != b {
		return a > b
	}
	return plan.CostPerHour < than.CostPerHour
}

// try makes a plan and returns the placements that the real filters refuse.
func (d *Decider) try(ctx context.Context, s *Scene, opts capacity.Options) (*capacity.Plan, []capacity.Rejection, error) {
	planned := d.timed("plan")
	plan := d.Planner.Plan(&s.View, opts)
	planned()
	sameDevices(plan)
	if len(plan.Placements) == 0 {
		return plan, nil, nil
	}
	verified := d.timed("verify")
	rejected, err := d.World.Verify(ctx, d.trial(s, plan))
	verified()
	if err != nil {
		return nil, nil, fmt.Errorf("running the profile's filters: %w", err)
	}
	if len(rejected) > 0 {
		klog.FromContext(ctx).V(3).Info("Filters refuse placements of the plan", "refused", len(rejected),
			"first", rejected[0].Reason, "plugin", rejected[0].Plugin)
	}
	for i := range rejected {
		planRejections.WithLabelValues(rejected[i].Plugin).Inc()
	}
	return plan, rejected, nil
}

// timed returns a func that observes how long a phase has taken since the call of timed.
func (d *Decider) timed(phase string) func() {
	if d.Clock == nil {
		return func() {}
	}
	start := d.Clock.Now()
	return func() { planSeconds.WithLabelValues(phase).Observe(d.Clock.Since(start).Seconds()) }
}

// trial returns the plan as the request that the real filters verify.
func (d *Decider) trial(s *Scene, plan *capacity.Plan) capacity.Trial {
	t := capacity.Trial{Promised: s.Promised, Nodes: slices.Clone(s.Hypothetical)}
	for _, n := range plan.Nodes {
		t.Nodes = append(t.Nodes, capacity.TrialNode{Node: d.Nodes.PlannedNode(n, n.ID), Pods: daemonPods(n.ID, n.Daemons), Devices: DevicesOf(n)})
	}
	for _, pl := range plan.Placements {
		t.Steps = append(t.Steps, d.step(pl.Class, pl.Pod, pl.Node))
	}
	return t
}

func (d *Decider) step(c *capacity.Class, ref capacity.PodRef, node string) capacity.Step {
	pod := c.Pod
	if live := d.Pod(ref.UID); live != nil {
		pod = live
	}
	return capacity.Step{Pod: pod, Class: c.Key, Node: node}
}

func daemonPods(node string, daemons []*capacity.DaemonSet) []*corev1.Pod {
	out := make([]*corev1.Pod, 0, len(daemons))
	for _, d := range daemons {
		pod := d.Class.Pod.DeepCopy()
		pod.Namespace, pod.Name, pod.UID = d.Namespace, d.Name+"-"+node, types.UID(d.Namespace+"/"+d.Name+"/"+node)
		pod.Spec.NodeName = node
		out = append(out, pod)
	}
	return out
}
