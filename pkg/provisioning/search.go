package provisioning

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
)

// maxTries bounds how often one Decide plans and verifies, whatever Patience allows.
const maxTries = 100

// judgesByOthers holds kube-scheduler's plugins whose answer about a node depends on the other nodes.
var judgesByOthers = map[string]bool{"PodTopologySpread": true, "InterPodAffinity": true}

// search is what one Decide learns about what the filters accept.
//
// Filters refuse without saying what they would accept, so each existing node has to be tried, and each combination of pool, zone and
// capacity type. A whole plan is an expensive way to try one of them, so the filters are asked about a class on all nodes at once when it
// is refused a second time.
type search struct {
	*Decider
	scene *Scene
	opts  capacity.Options
	// demand is the first entry of the scene's Demand for each class.
	demand map[capacity.ClassKey]*capacity.Demand
	// known holds the placements that are forbidden, accepted those where the filters accepted a pod of the class in a plan, both without reasons.
	known, accepted map[capacity.Forbidden]bool
	// refused counts the plans in which a class was refused; surveyed and probed hold the classes that were verified on all existing nodes
	// and on all possible new nodes.
	refused          map[capacity.ClassKey]int
	surveyed, probed map[capacity.ClassKey]bool
	// removed holds the messages with which pods were refused because the filters refused their placements.
	removed map[string]bool
	// found are the refusals on new nodes, which are worth remembering for the next rounds.
	found      []capacity.Forbidden
	candidates *planner.Planner // lists the new nodes that could be bought for a pod
	tries      int              // number of plans made so far
	start      time.Time
}

func (d *Decider) newSearch(s *Scene, opts capacity.Options) *search {
	q := &search{Decider: d, scene: s, opts: opts, demand: map[capacity.ClassKey]*capacity.Demand{}, known: map[capacity.Forbidden]bool{},
		accepted: map[capacity.Forbidden]bool{}, refused: map[capacity.ClassKey]int{}, surveyed: map[capacity.ClassKey]bool{},
		probed: map[capacity.ClassKey]bool{}, candidates: planner.New(), removed: map[string]bool{}}
	q.opts.Forbidden = slices.Clone(opts.Forbidden)
	q.opts.FixZone = maps.Clone(opts.FixZone)
	if q.opts.FixZone == nil {
		q.opts.FixZone = map[capacity.ClassKey]bool{}
	}
	for i := range s.Demand {
		if key := s.Demand[i].Class.Key; q.demand[key] == nil {
			q.demand[key] = &s.Demand[i]
		}
	}
	for _, f := range opts.Forbidden {
		q.known[place(f)] = true
	}
	for _, f := range d.memory.Recall(s.Pools, slices.Sorted(maps.Keys(q.demand))) {
		q.forbid(f)
		q.opts.FixZone[f.Class] = true
		q.found = append(q.found, f)
	}
	if d.Clock != nil {
		q.start = d.Clock.Now()
	}
	return q
}

// place returns f without its reason.
func place(f capacity.Forbidden) capacity.Forbidden {
	f.Plugin, f.Reason = "", ""
	return f
}

// forbid forbids a placement and reports whether it was not forbidden before.
func (q *search) forbid(f capacity.Forbidden) bool {
	if q.known[place(f)] {
		return false
	}
	q.known[place(f)] = true
	q.opts.Forbidden = append(q.opts.Forbidden, f)
	return true
}

// over reports whether there is no time for another try. The first two tries are always made.
func (q *search) over() bool {
	return q.tries >= 2 && (q.Patience == 0 || q.Clock.Since(q.start) >= q.Patience || q.tries >= maxTries)
}

func (q *search) try(ctx context.Context, s *Scene, opts capacity.Options) (*capacity.Plan, []capacity.Rejection, error) {
	q.tries++
	return q.Decider.try(ctx, s, opts)
}

// learn forbids what the filters refused: an existing node, or for a new node the pool in that zone and of that capacity type. If the zone
// of the new node was left open, it is first tried with a fixed zone before anything is forbidden, since a filter may need one. learn
// reports whether it learned anything new.
func (q *search) learn(plan *capacity.Plan, rejected []capacity.Rejection) (news bool) {
	if len(rejected) == 0 {
		return false
	}
	planned := map[string]*capacity.PlannedNode{}
	for _, n := range plan.Nodes {
		planned[n.ID] = n
	}
	on := func(pl *capacity.Placement) capacity.Forbidden {
		if n := planned[pl.Node]; n != nil {
			return newNode(pl.Class.Key, n)
		}
		return capacity.Forbidden{Class: pl.Class.Key, Node: pl.Node}
	}
	steps, classes := map[int]bool{}, map[capacity.ClassKey]bool{}
	for _, r := range rejected {
		steps[r.Step] = true
		if key := plan.Placements[r.Step].Class.Key; !classes[key] {
			classes[key] = true
			q.refused[key]++
		}
	}
	for i := range plan.Placements {
		if !steps[i] {
			q.accepted[on(&plan.Placements[i])] = true
		}
	}
	for _, r := range rejected {
		f := on(&plan.Placements[r.Step])
		if f.Node == "" && f.Zone == "" && !q.opts.FixZone[f.Class] {
			q.opts.FixZone[f.Class], news = true, true
			continue
		}
		f.Plugin, f.Reason = r.Plugin, r.Reason
		news = q.refuse(f) || news
	}
	return news
}

// newNode returns what a refusal on a new node forbids.
func newNode(class capacity.ClassKey, n *capacity.PlannedNode) capacity.Forbidden {
	return capacity.Forbidden{Class: class, Pool: n.Pool.Name, Zone: n.Labels[corev1.LabelTopologyZone], CapacityType: n.CapacityType}
}

// refuse is forbid for what the filters have just refused. If they accept other pods of the class there, the refusal is about this pod only
// and not worth remembering.
func (q *search) refuse(f capacity.Forbidden) bool {
	if !q.forbid(f) {
		return false
	}
	if f.Node == "" && !q.accepted[place(f)] {
		q.found = append(q.found, f)
	}
	return true
}

// ask has the filters check classes that were refused in two plans against all nodes.
func (q *search) ask(ctx context.Context, plan *capacity.Plan, rejected []capacity.Rejection) error {
	existing := map[string]bool{}
	for _, n := range q.scene.Nodes {
		existing[n.Name] = true
	}
	for _, r := range rejected {
		pl := &plan.Placements[r.Step]
		key := pl.Class.Key
		if q.refused[key] < 2 || q.over() {
			continue
		}
		var err error
		switch {
		case existing[pl.Node] && !q.surveyed[key]:
			err = q.survey(ctx, key)
		case !existing[pl.Node] && !q.probed[key]:
			err = q.probe(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// survey verifies a class on each existing node that has capacity for it.
func (q *search) survey(ctx context.Context, key capacity.ClassKey) error {
	q.surveyed[key] = true
	class, ref := q.pod(key)
	t := capacity.Trial{Promised: q.scene.Promised, Nodes: q.scene.Hypothetical, Alone: true}
	for _, n := range q.scene.Nodes {
		if !n.Closed && class.Requests.Fits(n.Free) && !q.known[capacity.Forbidden{Class: key, Node: n.Name}] {
			t.Steps = append(t.Steps, q.step(class, ref, n.Name))
		}
	}
	return q.verify(ctx, t, func(r capacity.Rejection) {
		q.refuse(capacity.Forbidden{Class: key, Node: t.Steps[r.Step].Node, Plugin: r.Plugin, Reason: r.Reason})
	})
}

// probe verifies a class on each new node that could be bought for one of its pods.
//
// All of these nodes exist at once in the simulation, as they never will. Plugins whose answer depends on the other nodes are therefore
// ignored; the planner knows their rules.
func (q *search) probe(ctx context.Context, key capacity.ClassKey) error {
	q.probed[key], q.opts.FixZone[key] = true, true
	class, ref := q.pod(key)
	t := capacity.Trial{Promised: q.scene.Promised, Nodes: slices.Clone(q.scene.Hypothetical), Alone: true}
	nodes := q.candidates.Candidates(&q.scene.View, class, q.opts)
	for _, n := range nodes {
		t.Nodes = append(t.Nodes, capacity.TrialNode{Node: q.Nodes.PlannedNode(n, n.ID), Pods: daemonPods(n.ID, n.Daemons), Devices: DevicesOf(n)})
		t.Steps = append(t.Steps, q.step(class, ref, n.ID))
	}
	return q.verify(ctx, t, func(r capacity.Rejection) {
		f := newNode(key, nodes[r.Step])
		if judgesByOthers[r.Plugin] || q.accepted[f] {
			return
		}
		f.Plugin, f.Reason = r.Plugin, r.Reason
		q.refuse(f)
	})
}

// pod returns the class and the pod that stands for it.
func (q *search) pod(key capacity.ClassKey) (class *capacity.Class, ref capacity.PodRef) {
	d := q.demand[key]
	if len(d.Pods) > 0 {
		ref = d.Pods[0]
	}
	return d.Class, ref
}

func (q *search) verify(ctx context.Context, t capacity.Trial, refused func(capacity.Rejection)) error {
	if len(t.Steps) == 0 {
		return nil
	}
	rejected, err := q.World.Verify(ctx, t)
	if err != nil {
		return fmt.Errorf("running the profile's filters: %w", err)
	}
	for _, r := range rejected {
		refused(r)
	}
	return nil
}

// remove removes refused placements from the plan. Their pods are refused, for now; the other placements were verified without them.
func (q *search) remove(plan *capacity.Plan, rejected []capacity.Rejection) {
	tried := map[capacity.ClassKey]int{}
	for _, f := range q.opts.Forbidden {
		tried[f.Class]++
	}
	gone := map[int]capacity.Removal{}
	for _, r := range rejected {
		key := plan.Placements[r.Step].Class.Key
		why := fmt.Sprintf("the scheduler's %s filter refuses the pod on the nodes that were tried for it (%d): %s", r.Plugin, max(tried[key], 1), r.Reason)
		gone[r.Step] = capacity.Removal{RestHolds: true, Message: why}
		q.removed[why] = true
	}
	plan.Remove(gone)
}

// reword replaces, for classes whose placements were removed, the plan's message by that of the last plan, for which more refusals were known.
func (q *search) reword(plan, last *capacity.Plan) {
	if plan == last {
		return
	}
	said := map[capacity.ClassKey]string{}
	for _, r := range last.Refused {
		said[r.Class.Key] = r.Message
	}
	for i := range plan.Refused {
		if r := &plan.Refused[i]; q.removed[r.Message] && said[r.Class.Key] != "" {
			r.Message = said[r.Class.Key]
		}
	}
}

// remember keeps the refusals on new nodes for the next round, for classes that were placed and for those whose search was cut short. For a
// class that was refused everywhere they are of no use: it is verified anew when it is planned for again.
func (q *search) remember(plan *capacity.Plan) {
	if q.memory == nil {
		return
	}
	keep := map[capacity.ClassKey]bool{}
	for _, pl := range plan.Placements {
		keep[pl.Class.Key] = true
	}
	over := q.over()
	found := map[capacity.ClassKey][]capacity.Forbidden{}
	for _, f := range q.found {
		found[f.Class] = append(found[f.Class], f)
	}
	for key := range q.demand {
		if len(found[key]) == 0 || !keep[key] && !over {
			q.memory.Forget(key)
			continue
		}
		q.memory.Keep(q.scene.Pools, key, found[key])
	}
}
