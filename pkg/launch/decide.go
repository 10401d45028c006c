package launch

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
)

// DefaultEffort goes into a cheaper plan for each burst, in units of capacity.Options: some tens of milliseconds of the planner's
// goroutine.
const DefaultEffort = 50_000

// Scene is a view and what the verification of a plan needs beside it.
type Scene struct {
	capacity.View
	// Hypothetical are in-flight nodes the scheduler's cache doesn't have.
	Hypothetical []capacity.TrialNode
	// Promised are pods with a slot that the snapshot doesn't show.
	Promised []capacity.Step
}

// DefaultPatience is how long a round goes on looking for nodes that the filters accept, while demand of others waits. What it has
// learned by then is remembered, and the next round goes on from there.
const DefaultPatience = time.Second

// Decider plans and has its plans tried by the real filters. It is all there is between a view and a plan that may be
// bought: who wants to know what would be done asks the same decider.
type Decider struct {
	Planner Planner
	World   World // refreshed since the scene was looked at
	Nodes   NodeBuilder
	// Pod is the pod as it is now, or nil when it isn't known: then its class speaks for it.
	Pod func(types.UID) *corev1.Pod
	// Patience is how long to look for what the filters accept after the second try, by Clock. 0: not at all.
	Patience time.Duration
	Clock    clock.PassiveClock
	// memory is of what the filters have refused in earlier rounds; nil: nothing is remembered.
	memory *filterRefusals
}

// Decide plans and has the plan tried by the real filters. Placements they refuse are forbidden and everything is planned once more, as
// long as that teaches anything and patience lasts.
//
// Of the plans that were made, less what was refused of them, the one with the most pods counts. It need not be the last: what is
// forbidden is forbidden to every pod of a class, so that of two pods that can't share a volume, say, the last plan has none.
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

// better says whether a plan places more pods than another, or as many for less. The first of equals leaves most open.
func better(plan, than *capacity.Plan) bool {
	if a, b := len(plan.Placements), len(than.Placements); a != b {
		return a > b
	}
	return plan.CostPerHour < than.CostPerHour
}

// try makes a plan and gives what the real filters refuse of it.
func (d *Decider) try(ctx context.Context, s *Scene, opts capacity.Options) (*capacity.Plan, []capacity.Rejection, error) {
	plan := d.Planner.Plan(&s.View, opts)
	if len(plan.Placements) == 0 {
		return plan, nil, nil
	}
	rejected, err := d.World.Verify(ctx, d.trial(s, plan))
	if err != nil {
		return nil, nil, fmt.Errorf("running the profile's filters: %w", err)
	}
	if len(rejected) > 0 {
		klog.FromContext(ctx).V(3).Info("Filters refuse placements of the plan", "refused", len(rejected),
			"first", rejected[0].Reason, "plugin", rejected[0].Plugin)
	}
	return plan, rejected, nil
}

// trial is the plan as the real filters are asked about it.
func (d *Decider) trial(s *Scene, plan *capacity.Plan) capacity.Trial {
	t := capacity.Trial{Promised: s.Promised, Nodes: slices.Clone(s.Hypothetical)}
	for _, n := range plan.Nodes {
		t.Nodes = append(t.Nodes, capacity.TrialNode{Node: d.Nodes.PlannedNode(n, n.ID), Pods: daemonPods(n.ID, n.Daemons)})
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
