package launch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	corev1 "k8s.io/api/core/v1"
)

// maxTries bounds how often one Decide plans and verifies, whatever the clock says.
const maxTries = 100

// judgesByOthers are kube-scheduler's plugins that judge a node by which others there are.
var judgesByOthers = map[string]bool{"PodTopologySpread": true, "InterPodAffinity": true}

// search is what one Decide learns about what the filters accept.
//
// Filters say no without saying what they would accept, so each existing node is a try, and each combination of pool, zone and capacity type.
// A plan is a dear way of trying one of them. A class that is refused a second time is therefore asked about everywhere at once.
type search struct {
	*Decider
	scene *Scene
	opts  capacity.Options
	// demand is what there is of each class, the first of it.
	demand map[capacity.ClassKey]*capacity.Demand
	// known is what is forbidden, accepted where pods of a class were accepted in a plan, both without reasons.
	known, accepted map[capacity.Forbidden]bool
	// refused is how many plans had a class refused; surveyed and probed are the classes that were asked about on all nodes, there are
	// and there might be.
	refused          map[capacity.ClassKey]int
	surveyed, probed map[capacity.ClassKey]bool
	// removed is what was said of placements that were taken out.
	removed map[string]bool
	// found is what is worth remembering: what was refused on new nodes.
	found      []capacity.Forbidden
	candidates *capacity.Planner
	tries      int
	start      time.Time
}

func (d *Decider) newSearch(s *Scene, opts capacity.Options) *search {
	q := &search{Decider: d, scene: s, opts: opts, demand: map[capacity.ClassKey]*capacity.Demand{}, known: map[capacity.Forbidden]bool{},
		accepted: map[capacity.Forbidden]bool{}, refused: map[capacity.ClassKey]int{}, surveyed: map[capacity.ClassKey]bool{},
		probed: map[capacity.ClassKey]bool{}, candidates: capacity.NewPlanner(), removed: map[string]bool{}}
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
	for _, f := range d.memory.recall(s.Pools, slices.Sorted(maps.Keys(q.demand))) {
		q.forbid(f)
		q.opts.FixZone[f.Class] = true
		q.found = append(q.found, f)
	}
	if d.Clock != nil {
		q.start = d.Clock.Now()
	}
	return q
}

// place is what it rules out, whatever the reason.
func place(f capacity.Forbidden) capacity.Forbidden {
	f.Plugin, f.Reason = "", ""
	return f
}

// forbid rules something out and says whether it was not ruled out before.
func (q *search) forbid(f capacity.Forbidden) bool {
	if q.known[place(f)] {
		return false
	}
	q.known[place(f)] = true
	q.opts.Forbidden = append(q.opts.Forbidden, f)
	return true
}

// over says that there is no time for another try. The first two are free.
func (q *search) over() bool {
	return q.tries >= 2 && (q.Patience == 0 || q.Clock.Since(q.start) >= q.Patience || q.tries >= maxTries)
}

func (q *search) try(ctx context.Context, s *Scene, opts capacity.Options) (*capacity.Plan, []capacity.Rejection, error) {
	q.tries++
	return q.Decider.try(ctx, s, opts)
}

// learn rules out what the filters refused: on an existing node that node, on a new one the pool in that zone and of that capacity
// type. A node whose zone was left open is tried again with one before anything is ruled out, since a filter may ask for it.
// It says whether there was anything to learn.
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

// newNode is what a new node stands for.
func newNode(class capacity.ClassKey, n *capacity.PlannedNode) capacity.Forbidden {
	return capacity.Forbidden{Class: class, Pool: n.Pool.Name, Zone: n.Labels[corev1.LabelTopologyZone], CapacityType: n.CapacityType}
}

// refuse is forbid for what the filters have just refused. Where they take other pods of the class, what they said is about
// this pod, and not worth remembering.
func (q *search) refuse(f capacity.Forbidden) bool {
	if !q.forbid(f) {
		return false
	}
	if f.Node == "" && !q.accepted[place(f)] {
		q.found = append(q.found, f)
	}
	return true
}

// ask asks everywhere about classes that a plan with other nodes hasn't helped.
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

// survey asks about a class on each existing node with room for it.
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

// probe asks about a class on each new node that could be bought for one pod of it.
//
// All of these nodes are there at once, as they will never be. That matters to plugins which judge a node by others; the planner knows their
// rules, so that they are not asked for advice.
func (q *search) probe(ctx context.Context, key capacity.ClassKey) error {
	q.probed[key], q.opts.FixZone[key] = true, true
	class, ref := q.pod(key)
	t := capacity.Trial{Promised: q.scene.Promised, Nodes: slices.Clone(q.scene.Hypothetical), Alone: true}
	nodes := q.candidates.Candidates(&q.scene.View, class, q.opts)
	for _, n := range nodes {
		t.Nodes = append(t.Nodes, capacity.TrialNode{Node: q.Nodes.PlannedNode(n, n.ID), Pods: daemonPods(n.ID, n.Daemons)})
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

// pod is the one that speaks for its class.
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

// remove takes refused placements out of the plan. Their pods are refused, for now; the others were tried without them.
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

// reword lets a plan say of classes that were refused a place what the last one says, which knows more.
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

// remember keeps what was refused on new nodes for the next round, of classes that found a place and of those whose search was cut
// short. A class that was tried everywhere in vain gains nothing by it: it is asked about anew when it is planned for again.
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
			q.memory.forget(key)
			continue
		}
		q.memory.keep(q.scene.Pools, key, found[key])
	}
}
