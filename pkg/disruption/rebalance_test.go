package disruption

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// rebalancing is a pool that replaces nodes whose spot capacity EC2 recommends to leave, and would not consolidate otherwise.
func rebalancing(p *karpv1.NodePool) {
	p.Annotations = map[string]string{objects.AnnotationRebalance: "replace"}
	p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
}

// bought has a claim's node be so old, of a capacity type.
func bought(capacityType string, age time.Duration) func(*karpv1.NodeClaim, *corev1.Node) {
	return func(c *karpv1.NodeClaim, n *corev1.Node) {
		created(epoch.Add(-age))(c, n)
		c.Labels[karpv1.CapacityTypeLabelKey] = capacityType
	}
}

// recommend has EC2 recommend to leave the capacity of claims' instances.
func (w *world) recommend(names ...string) {
	w.t.Helper()
	var all []capacity.Interruption
	for _, name := range names {
		all = append(all, capacity.Interruption{InstanceID: "i-" + name, Kind: capacity.SpotRebalance})
	}
	if err := errors.Join(w.c.Interrupted(w.t.Context(), all)...); err != nil {
		w.t.Fatal(err)
	}
}

// rebalances is a move for such nodes.
func rebalances(key string, nodes []string, claims ...string) consolidation.Due {
	d := due(key, nodes, claims...)
	d.Reason, d.Saves, d.Ceiling = consolidation.RebalanceRecommended, -0.2, 1.5*float64(len(nodes))
	return d
}

// askedAbout returns the candidate for a claim's node in the last request.
func (p *planner) askedAbout(name string) consolidation.Candidate {
	p.w.t.Helper()
	if len(p.asked) == 0 {
		p.w.t.Fatal("nothing was asked for")
	}
	for _, c := range p.asked[len(p.asked)-1].Candidates {
		if c.Node == "node-"+name {
			return c
		}
	}
	p.w.t.Fatalf("node-%s is no candidate", name)
	return consolidation.Candidate{}
}

// A recommendation makes a node one that has to go, if its pool asks for that, and it is used spot capacity.
func TestRecommendationsAreFollowed(t *testing.T) {
	inTemplate := func(p *karpv1.NodePool) {
		p.Annotations = nil
		p.Spec.Template.Annotations = map[string]string{objects.AnnotationRebalance: "replace"}
	}
	said := func(value string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) { p.Annotations[objects.AnnotationRebalance] = value }
	}
	for name, tc := range map[string]struct {
		pool    func(*karpv1.NodePool)
		machine func(*karpv1.NodeClaim, *corev1.Node)
		pod     func(*corev1.Pod)
		wait    time.Duration
		forced  bool
		known   bool // it is recorded
		kept    consolidation.Kind
		event   string
	}{
		"asked for":                 {forced: true, known: true},
		"asked for in the template": {pool: inTemplate, forced: true, known: true},
		"not asked for":             {pool: func(p *karpv1.NodePool) { p.Annotations = nil }, kept: consolidation.Disabled},
		"off":                       {pool: said("off"), kept: consolidation.Disabled},
		"said in a way that means nothing": {pool: said("yes"), kept: consolidation.Disabled,
			event: `default Warning AnnotationIgnored: The annotation dovetail.sh/rebalance: "yes" of NodePool default is ignored: it must be "replace" or "off"`},
		"a new node":                     {machine: bought("spot", 5*time.Minute), known: true, kept: consolidation.Disabled},
		"a recommendation of yesterday":  {wait: 24 * time.Hour, known: true, kept: consolidation.Disabled},
		"a node that was new":            {machine: bought("spot", 5*time.Minute), wait: 5 * time.Minute, forced: true, known: true},
		"on demand":                      {machine: bought("on-demand", time.Hour), known: true, kept: consolidation.Disabled},
		"a pod asks not to be disrupted": {pod: annotated(karpv1.DoNotDisruptAnnotationKey, "true"), forced: true, known: true, kept: consolidation.Protected},
		"a paused pool":                  {pool: func(p *karpv1.NodePool) { p.Annotations[objects.AnnotationPauseDisruption] = "true" }, forced: true, known: true, kept: consolidation.Paused},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := consolidating(t, rebalancing, func(np *karpv1.NodePool) {
				if tc.pool != nil {
					tc.pool(np)
				}
			})
			machine := tc.machine
			if machine == nil {
				machine = bought("spot", time.Hour)
			}
			w.machine("a", machine)
			w.bind("web-a", "node-a", controlled, web, func(pod *corev1.Pod) {
				if tc.pod != nil {
					tc.pod(pod)
				}
			})
			w.sync()
			w.recommend("a", "a")
			if _, ok := w.claim("a").Annotations[objects.AnnotationRebalanceRecommended]; ok != tc.known || slices.Contains(w.leaving, "a") != tc.known {
				t.Errorf("recorded %v, the cloud is told of %q", ok, w.leaving)
			}
			w.clock.Step(tc.wait)
			w.mustPass()
			c := p.askedAbout("a")
			if got := c.Forced == consolidation.RebalanceRecommended; got != tc.forced || tc.forced && !c.ForcedAt.Equal(epoch) {
				t.Errorf("the candidate: %+v", c)
			}
			if tc.kept == "" && c.Blocked != nil || tc.kept != "" && (c.Blocked == nil || c.Blocked.Kind != tc.kept) {
				t.Errorf("it is kept: %+v", c.Blocked)
			}
			if tc.event != "" && !w.event(tc.event) {
				t.Errorf("no event %q in %q", tc.event, w.events)
			}
		})
	}
}

// The request says how many nodes may be replaced: as many as the budgets say that name no reason, or a tenth.
func TestRebalanceBudgets(t *testing.T) {
	for name, tc := range map[string]struct {
		budgets []karpv1.Budget
		want    int
	}{
		"a budget for all reasons": {[]karpv1.Budget{{Nodes: "4"}}, 4},
		"none at all":              {nil, 2},
		"one for other reasons":    {[]karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}}}, 2},
		"nothing":                  {[]karpv1.Budget{{Nodes: "0"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := consolidating(t, rebalancing, func(np *karpv1.NodePool) { np.Spec.Disruption.Budgets = tc.budgets })
			for i := range 11 {
				w.machine(fmt.Sprint(i), bought("spot", time.Hour))
			}
			w.mustPass()
			if got := p.asked[0].Pools["default"].Budgets[consolidation.RebalanceRecommended]; got != tc.want {
				t.Errorf("%d nodes may be replaced, want %d", got, tc.want)
			}
		})
	}
}

// The replacement is up before the node is drained; it may cost more, but not much more.
func TestRebalanceMove(t *testing.T) {
	begin := func(t *testing.T, price float64) (*world, *planner) {
		w, p := consolidating(t, rebalancing)
		for _, name := range []string{"a", "new", "receiver"} {
			w.machine(name, bought("spot", time.Hour))
			w.bind("web-"+name, "node-"+name, controlled, web)
		}
		w.sync()
		w.recommend("a")
		p.prices["new"] = price
		p.result = &consolidation.Result{Moves: []consolidation.Due{rebalances("m1", []string{"node-a"}, "new")}}
		w.fenced["node-a"] = true
		w.mustPass()
		if len(w.deleted) > 0 {
			t.Fatalf("deleted %v before the new node is there", w.deleted)
		}
		if !w.event("a Normal ReplacementPlanned: The node is going to be drained because EC2 recommends to leave its spot capacity: capacity for its pods is reserved on other nodes") {
			t.Errorf("nobody is told: %q", w.events)
		}
		p.ready = true
		return w, p
	}
	t.Run("dearer", func(t *testing.T) {
		w, _ := begin(t, 1.2)
		w.mustPass()
		if !slices.Equal(w.deleted, []string{"a"}) || !w.event("a Normal DisruptionTerminating: Terminating the node: EC2 recommends to leave its spot capacity") {
			t.Errorf("deleted %v; %q", w.deleted, w.events)
		}
	})
	t.Run("much dearer", func(t *testing.T) {
		w, p := begin(t, 1.6)
		w.mustPass()
		if len(w.deleted) > 0 || !slices.Contains(p.calls, "forget m1") {
			t.Errorf("deleted %v, calls %q", w.deleted, p.calls)
		}
		if !w.event("a Normal ReplacementMissing: The node, whose spot capacity EC2 recommends to leave, is not replaced now: the nodes that were launched for it cost $1.6000/h") {
			t.Errorf("nobody is told: %q", w.events)
		}
	})
	t.Run("no longer asked for", func(t *testing.T) {
		w, p := begin(t, 1)
		w.changePool(func(np *karpv1.NodePool) { np.Annotations = nil })
		w.mustPass()
		if len(w.deleted) > 0 || !slices.Contains(p.calls, "forget m1") {
			t.Errorf("deleted %v, calls %q", w.deleted, p.calls)
		}
	})
}

// A node that was bought on demand for want of spot capacity may return half an hour later, of its life and of this process (which watches for an hour here); after a return
// that failed it waits as long again, and twice as long each time.
func TestReturnsToSpotAreRare(t *testing.T) {
	wanting := func(age time.Duration) func(*karpv1.NodeClaim, *corev1.Node) {
		return func(c *karpv1.NodeClaim, n *corev1.Node) {
			bought("on-demand", age)(c, n)
			c.Annotations = map[string]string{objects.AnnotationForWantOfSpot: "true"}
		}
	}
	w, p := consolidating(t)
	w.machine("a", wanting(-time.Minute))
	w.machine("b", wanting(time.Hour))
	w.machine("c", bought("on-demand", time.Hour))
	for _, name := range []string{"a", "b", "c"} {
		w.bind("web-"+name, "node-"+name, controlled, web)
	}
	w.mustPass()
	for name, want := range map[string]time.Time{"a": epoch.Add(31 * time.Minute), "b": epoch.Add(-30 * time.Minute), "c": {}} {
		if got := p.askedAbout(name).ReturnsAt; !got.Equal(want) {
			t.Errorf("node %s returns at %s, want %s", name, got, want)
		}
	}
	w.clock.Step(time.Hour)
	for n, wait := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour} {
		w.machine(fmt.Sprintf("new%d", n))
		p.result = &consolidation.Result{Moves: []consolidation.Due{due("m1", []string{"node-b"}, fmt.Sprintf("new%d", n))}}
		p.lost = errors.New("no instance came")
		w.mustPass()
		blocked := func() bool {
			w.clock.Step(askEvery)
			w.mustPass()
			k := p.askedAbout("b").Blocked
			p.w.c.passes.consolidations.asked = time.Time{}
			return k != nil
		}
		w.clock.Step(wait - 2*askEvery - time.Second)
		if !blocked() {
			t.Errorf("try %d: it is a candidate within %s", n, wait)
		}
		w.clock.Step(askEvery + time.Second)
		if blocked() {
			t.Errorf("try %d: it is no candidate after %s: %+v", n, wait, p.askedAbout("b").Blocked)
		}
	}
}
