package disruption

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// planner stands for the planner's half of the consolidation.
type planner struct {
	w       *world
	asked   []*consolidation.Request
	result  *consolidation.Result
	ready   bool
	lost    error // what Ready and Begin fail with
	covered map[string]bool
	calls   []string // of everything but Ask and Result
	left    []string // nodes that Leave was called for
	// prices are those of claims; 1 without any.
	prices map[string]float64
}

func (p *planner) Ask(r *consolidation.Request) { p.asked = append(p.asked, r) }

func (p *planner) Result() *consolidation.Result {
	r := p.result
	p.result = nil
	return r
}

func (p *planner) Ready(key string, now map[string][]*corev1.Pod) (bool, error) {
	return p.ready, p.lost
}

// Begin has capacity for the pods in covered; nil: for all.
func (p *planner) Begin(key string, now map[string][]*corev1.Pod) error {
	var names []string
	for node, pods := range now {
		for _, pod := range pods {
			names = append(names, node+"/"+pod.Name)
			if p.covered != nil && !p.covered[pod.Name] {
				return fmt.Errorf("no capacity is reserved for pod %s", pod.Name)
			}
		}
	}
	slices.Sort(names)
	p.calls = append(p.calls, "begin "+key+" "+strings.Join(names, " "))
	return p.lost
}

// Surge stands for the ledger's, and is told which pods.
func (p *planner) Surge(key string, now map[string][]*corev1.Pod, surging []*corev1.Pod) error {
	var names []string
	for _, pod := range surging {
		names = append(names, pod.Spec.NodeName+"/"+pod.Name)
	}
	slices.Sort(names)
	p.calls = append(p.calls, "surge "+key+" "+strings.Join(names, " "))
	return p.lost
}

func (p *planner) Keep(key string) { p.calls = append(p.calls, "keep "+key) }

// Forget lifts the cordons of all nodes, as the ledger does for those that are not being removed.
func (p *planner) Leave(node string) { p.left = append(p.left, node) }

func (p *planner) Forget(key string) {
	p.calls = append(p.calls, "forget "+key)
	for node := range p.w.fenced {
		if p.w.alive(strings.TrimPrefix(node, "node-")) {
			delete(p.w.fenced, node)
		}
	}
}

// consolidating returns a world with consolidation, in which all nodes of the pools are quiet at once.
func consolidating(t *testing.T, change ...func(*karpv1.NodePool)) (*world, *planner) {
	t.Helper()
	w := newWorld(t, pool(append([]func(*karpv1.NodePool){func(p *karpv1.NodePool) {
		p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
	}}, change...)...))
	p := &planner{w: w, prices: map[string]float64{}}
	w.cfg.Consolidation = p
	w.cfg.Class = func(pod *corev1.Pod) (*capacity.Class, error) {
		if why := pod.Labels["no-class"]; why != "" {
			return nil, errors.New(why)
		}
		return &capacity.Class{Key: "class"}, nil
	}
	w.cfg.Ours = func(pod *corev1.Pod) bool { return pod.Spec.SchedulerName == "" }
	w.cfg.Price = func(claim *karpv1.NodeClaim) (float64, bool) {
		price, ok := p.prices[claim.Name]
		if !ok {
			price = 1
		}
		return price, price >= 0
	}
	c, err := New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.c = c
	return w, p
}

// pdb adds a PodDisruptionBudget for pods with app=web.
func (w *world) pdb(name string, change ...func(*policyv1.PodDisruptionBudget)) {
	w.t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 1}}
	for _, f := range change {
		f(b)
	}
	if err := w.factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer().Update(b); err != nil {
		w.t.Fatal(err)
	}
}

func web(p *corev1.Pod) {
	p.Labels = map[string]string{"app": "web"}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// due is a move of nodes to the nodes of claims, with the pods' capacity reserved.
func due(key string, nodes []string, claims ...string) consolidation.Due {
	d := consolidation.Due{Key: key, Claims: map[string]string{}, Move: consolidation.Move{Nodes: nodes, Reason: consolidation.Underutilized, Saves: 0.5, Ceiling: 2, Cost: 0.25}}
	for _, c := range claims {
		id := "new-" + c
		d.Claims[id] = c
		d.New = append(d.New, &capacity.PlannedNode{ID: id})
		d.Placements = append(d.Placements, capacity.Placement{Node: id})
	}
	d.Placements = append(d.Placements, capacity.Placement{Node: "node-receiver"})
	return d
}

// reserved makes a pass that takes over a move of the machines a and b.
func reserved(t *testing.T, change ...func(*karpv1.NodePool)) (*world, *planner) {
	t.Helper()
	w, p := consolidating(t, change...)
	for _, name := range []string{"a", "b", "c", "new", "receiver"} {
		w.machine(name)
		w.bind("web-"+name, "node-"+name, controlled, web)
	}
	p.result = &consolidation.Result{Moves: []consolidation.Due{due("m1", []string{"node-a", "node-b"}, "new")}}
	w.fenced["node-a"], w.fenced["node-b"] = true, true
	w.mustPass()
	return w, p
}

// undone checks that nothing is left of the move m1.
func undone(t *testing.T, w *world, p *planner) {
	t.Helper()
	if len(w.deleted) > 0 {
		t.Errorf("deleted %v", w.deleted)
	}
	if !slices.Contains(p.calls, "forget m1") {
		t.Errorf("not forgotten: %q", p.calls)
	}
	for _, name := range []string{"a", "b"} {
		node := "node-" + name
		if w.alive(name) == w.fenced[node] || disrupted(w.node(node)) {
			t.Errorf("%s: fenced %v, tainted %v", node, w.fenced[node], disrupted(w.node(node)))
		}
	}
	if len(w.c.passes.consolidations.moves.open.list) > 0 {
		t.Error("the move is still open")
	}
}

// A move waits for its new nodes; then its nodes are tainted, their pods counted, and their claims deleted. It is done when the claims are gone.
func TestMove(t *testing.T) {
	w, p := reserved(t)
	if soon := w.mustPass(); soon != replaceEvery || len(w.deleted) > 0 || disrupted(w.node("node-a")) {
		t.Fatalf("next pass in %s, deleted %v, before the new node is there", soon, w.deleted)
	}
	if !w.event("a Normal ConsolidationPlanned: The node is going to be drained because its pods and those of 1 other nodes fit on nodes that cost $0.5000/h less") {
		t.Errorf("nobody is told: %q", w.events)
	}
	p.ready = true
	w.mustPass()
	if diff := cmp.Diff([]string{"a", "b"}, w.deleted); diff != "" {
		t.Fatalf("deleted (-want +got):\n%s", diff)
	}
	if !disrupted(w.node("node-a")) || !disrupted(w.node("node-b")) || !w.fenced["node-a"] {
		t.Error("open while it is drained")
	}
	if diff := cmp.Diff([]string{"begin m1 node-a/web-a node-b/web-b", "keep m1"}, p.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	w.mustPass()
	for _, name := range []string{"a", "b"} {
		claim := w.claim(name)
		claim.Finalizers = nil
		if err := w.claims.Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		if name == "a" {
			w.mustPass()
		}
	}
	w.mustPass()
	if diff := cmp.Diff([]string{"keep m1", "keep m1", "keep m1", "forget m1"}, p.calls[2:]); diff != "" {
		t.Errorf("then (-want +got):\n%s", diff)
	}
	if len(w.deleted) != 2 || len(w.c.passes.consolidations.moves.open.list) > 0 {
		t.Errorf("deleted %v", w.deleted)
	}
}

// Whatever is wrong before the first deletion, the move is given up, and nothing is left of it.
func TestMovesThatAreGivenUp(t *testing.T) {
	for _, tc := range []struct {
		name   string
		pool   func(*karpv1.NodePool)
		before func(w *world, p *planner)
		why    string
	}{
		{name: "given up for demand", why: "pods that wait", before: func(_ *world, p *planner) { p.lost = errors.New("pods that wait need its capacity") }},
		{name: "a pod that wasn't planned for", why: "no capacity is reserved for pod late", before: func(w *world, p *planner) {
			p.covered = map[string]bool{"web-a": true, "web-b": true}
			w.interrupt = func(call string) {
				if call == "taint" {
					w.interrupt = func(string) {}
					w.bind("late", "node-a", controlled)
				}
			}
		}},
		{name: "protected at the last moment", why: "asks not to be disrupted", before: func(w *world, _ *planner) {
			w.interrupt = func(call string) {
				if call == "taint" {
					w.interrupt = func(string) {}
					w.bind("job", "node-b", controlled, annotated(karpv1.DoNotDisruptAnnotationKey, "true"))
				}
			}
		}},
		{name: "a pod without controller at the last moment", why: "no controller", before: func(w *world, _ *planner) {
			w.interrupt = func(call string) {
				if call == "taint" {
					w.interrupt = func(string) {}
					w.bind("bare", "node-b")
				}
			}
		}},
		{name: "the node is protected", why: "karpenter.sh/do-not-disrupt", before: func(w *world, _ *planner) {
			if err := w.changeNode("node-b", func(n *corev1.Node) {
				n.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
			}); err != nil {
				w.t.Fatal(err)
			}
		}},
		{name: "dearer than it may be", why: "cost $2.1000/h", before: func(_ *world, p *planner) { p.prices["new"] = 2.1 }},
		{name: "as dear as its nodes", why: "cost $2.0000/h, and it saves nothing above $2.0000/h", before: func(_ *world, p *planner) { p.prices["new"] = 2 }},
		{name: "its nodes have become cheaper", why: "cost $1.0000/h, and it saves nothing above $0.8000/h", before: func(_ *world, p *planner) {
			p.prices["a"], p.prices["b"] = 0.4, 0.4
		}},
		{name: "nobody knows any more what its nodes cost", why: "price of NodeClaim b", before: func(_ *world, p *planner) { p.prices["b"] = -1 }},
		{name: "only empty nodes are consolidated", why: "consolidates empty nodes only", before: func(w *world, _ *planner) {
			w.changePool(func(p *karpv1.NodePool) {
				p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
			})
		}},
		{name: "a receiving node is being deleted", why: "node node-receiver, which takes its pods", before: func(w *world, _ *planner) {
			if err := w.claims.Delete(w.t.Context(), w.claim("receiver")); err != nil {
				w.t.Fatal(err)
			}
			w.deleted = nil
		}},
		{name: "nobody knows what the new node costs", why: "price of NodeClaim new", before: func(_ *world, p *planner) { p.prices["new"] = -1 }},
		{name: "paused", why: "paused", before: func(w *world, _ *planner) {
			w.changePool(func(p *karpv1.NodePool) {
				p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
			})
		}},
		{name: "the budget doesn't allow it any more", why: "budgets of pool default allow 1 of 2", before: func(w *world, _ *planner) {
			w.changePool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}} })
		}},
		{name: "consolidation is disabled", why: "doesn't consolidate", before: func(w *world, _ *planner) {
			w.changePool(func(p *karpv1.NodePool) {
				p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
			})
		}},
		{name: "its pods have gone", why: "its pods have ended", before: func(w *world, _ *planner) { w.unbind("web-a"); w.unbind("web-b") }},
		{name: "another client deletes a claim", why: "NodeClaim b was deleted", before: func(w *world, _ *planner) {
			if err := w.claims.Delete(w.t.Context(), w.claim("b")); err != nil {
				w.t.Fatal(err)
			}
			w.deleted = nil
		}},
		{name: "the new claim is gone", why: "NodeClaim new, which was launched for it, is gone", before: func(w *world, _ *planner) {
			claim := w.claim("new")
			claim.Finalizers = nil
			if err := errors.Join(w.claims.Update(w.t.Context(), claim), w.claims.Delete(w.t.Context(), claim)); err != nil {
				w.t.Fatal(err)
			}
			w.deleted = nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, p := reserved(t)
			p.ready = true
			tc.before(w, p)
			w.mustPass()
			w.interrupt = func(string) {}
			undone(t, w, p)
			if !slices.ContainsFunc(w.events, func(e string) bool {
				return strings.HasPrefix(e, "a Normal ConsolidationGivenUp") && strings.Contains(e, tc.why)
			}) {
				t.Errorf("no event about %q: %q", tc.why, w.events)
			}
		})
	}
}

// A move doesn't begin after ten minutes, whatever it waits for.
func TestMoveTimeout(t *testing.T) {
	for name, wait := range map[string]func(w *world, p *planner){
		"nodes":                       func(_ *world, p *planner) { p.ready = false },
		"budget":                      func(w *world, _ *planner) { w.pdb("web") },
		"new node not known here yet": func(w *world, _ *planner) { w.named("new", "") },
		"new node not seen here yet":  func(w *world, _ *planner) { w.named("new", "node-unseen") },
		"receiver not ready":          func(w *world, _ *planner) { w.unready("node-receiver") },
		"new node not ready":          func(w *world, _ *planner) { w.unready("node-new") },
		"receiver cordoned": func(w *world, _ *planner) {
			if err := w.changeNode("node-receiver", func(n *corev1.Node) { n.Spec.Unschedulable = true }); err != nil {
				w.t.Fatal(err)
			}
		},
		"brake": func(w *world, _ *planner) {
			w.c.passes.terminations.brake = brake.New(1)
			w.c.passes.terminations.brake.Take(w.clock.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := reserved(t)
			p.ready = true
			wait(w, p)
			w.mustPass()
			if len(w.deleted) > 0 || slices.Contains(p.calls, "forget m1") {
				t.Fatalf("deleted %v, calls %q", w.deleted, p.calls)
			}
			w.clock.Step(moveTimeout + time.Second)
			w.c.passes.terminations.brake.Take(w.clock.Now())
			w.mustPass()
			undone(t, w, p)
		})
	}
}

// named sets the name of a claim's Node.
func (w *world) named(claim, node string) {
	w.t.Helper()
	c := w.claim(claim)
	c.Status.NodeName = node
	if err := w.claims.Update(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
}

// unready makes a node NotReady.
func (w *world) unready(node string) {
	w.t.Helper()
	if err := w.changeNode(node, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }); err != nil {
		w.t.Fatal(err)
	}
}

// If a node that takes pods is lost between the deletions of a move's claims, the nodes that are left stay, without taint.
func TestReceiverLostBetweenDeletions(t *testing.T) {
	w, p := reserved(t)
	w.c.passes.terminations.brake = brake.New(1)
	p.ready = true
	w.mustPass()
	if diff := cmp.Diff([]string{"a"}, w.deleted); diff != "" {
		t.Fatalf("deleted first (-want +got):\n%s", diff)
	}
	w.unready("node-receiver")
	w.clock.Step(time.Minute)
	w.mustPass()
	w.clock.Step(time.Minute)
	w.mustPass()
	if diff := cmp.Diff([]string{"a"}, w.deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if disrupted(w.node("node-b")) || !disrupted(w.node("node-a")) {
		t.Errorf("tainted: a %v, b %v", disrupted(w.node("node-a")), disrupted(w.node("node-b")))
	}
	if !w.event("b Normal ConsolidationGivenUp: The node is not drained to save money: node node-receiver, which takes its pods") {
		t.Errorf("nobody is told: %q", w.events)
	}
	claim := w.claim("a")
	claim.Finalizers = nil
	if err := w.claims.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	p.result = &consolidation.Result{}
	w.mustPass()
	w.mustPass()
	if w.fenced["node-b"] || !slices.Contains(p.calls, "forget m1") {
		t.Errorf("fenced %v, calls %q", w.fenced, p.calls)
	}
	for _, c := range p.asked[len(p.asked)-1].Candidates {
		if c.Node == "node-b" && (c.Blocked == nil || c.Blocked.Kind != consolidation.OtherReason) {
			t.Errorf("b: %+v", c.Blocked)
		}
	}
}

// A node that has stayed when its move was cut short is replaced like any other if it has to end.
func TestKeptNodeThatHasToEnd(t *testing.T) {
	w, p := reserved(t)
	w.c.passes.terminations.brake = brake.New(1)
	p.ready = true
	w.mustPass()
	w.unready("node-receiver")
	w.clock.Step(time.Minute)
	w.mustPass()
	w.interrupted("b", w.clock.Now().Add(5*time.Minute), capacity.SpotInterrupted)
	w.mustPass()
	if diff := cmp.Diff([]string{"web-b"}, w.asked["node-b"]); diff != "" || !disrupted(w.node("node-b")) {
		t.Errorf("replaced (-want +got):\n%s", diff)
	}
	claim := w.claim("a")
	claim.Finalizers = nil
	if err := w.claims.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.mustPass()
	if !slices.Contains(p.calls, "forget m1") || !w.fenced["node-b"] || !disrupted(w.node("node-b")) {
		t.Errorf("calls %q, fenced %v, tainted %v", p.calls, w.fenced, disrupted(w.node("node-b")))
	}
}

// A move that bought nodes and came to nothing waits longer each time, so that nothing is bought in a loop.
func TestMovesThatFailAgainWaitLonger(t *testing.T) {
	for name, tc := range map[string]struct {
		claims []string
		why    error
		want   []time.Duration
	}{
		"with new nodes":            {[]string{"new"}, errors.New("no"), []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 4 * time.Hour}},
		"with new nodes for demand": {[]string{"new"}, consolidation.ErrDemand, []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute}},
		"to nodes that exist":       {nil, errors.New("no"), []time.Duration{15 * time.Minute, 15 * time.Minute, 15 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := consolidating(t)
			for _, name := range []string{"a", "new", "receiver"} {
				w.machine(name)
				w.bind("web-"+name, "node-"+name, controlled, web)
			}
			for i, want := range tc.want {
				p.result, p.lost = &consolidation.Result{Moves: []consolidation.Due{due("m1", []string{"node-a"}, tc.claims...)}}, tc.why
				w.mustPass()
				if got := w.c.passes.consolidations.moves.memory.failed["a"].until.Sub(w.clock.Now()); got != want {
					t.Errorf("time %d: waits for %s, want %s", i, got, want)
				}
				w.clock.Step(want)
			}
		})
	}
}

// changePool changes the pool.
func (w *world) changePool(change func(*karpv1.NodePool)) {
	w.t.Helper()
	var pools karpv1.NodePoolList
	if err := w.claims.List(w.t.Context(), &pools); err != nil {
		w.t.Fatal(err)
	}
	change(&pools.Items[0])
	if err := w.claims.Update(w.t.Context(), &pools.Items[0]); err != nil {
		w.t.Fatal(err)
	}
}

// A node that has to end can't be cordoned as long as moves have capacity reserved there: they are given up first.
func TestReceiverThatHasToEnd(t *testing.T) {
	w, p := consolidating(t)
	w.machine("a")
	w.bind("p", "node-a", controlled)
	w.taken = w.clock.Since(epoch) + time.Minute
	w.mustPass()
	if !slices.Equal(p.left, []string{"node-a"}) || !w.fenced["node-a"] {
		t.Errorf("moves have left %v, cordoned: %v", p.left, w.fenced)
	}
}

// If passes take long, the planner is asked less often.
func TestAskingForPasses(t *testing.T) {
	w, p := consolidating(t)
	asks := func(when string, step time.Duration, want int) {
		t.Helper()
		w.clock.Step(step)
		w.mustPass()
		if len(p.asked) != want {
			t.Errorf("%s: asked %d times, want %d", when, len(p.asked), want)
		}
	}
	asks("at first", 0, 1)
	asks("unanswered", time.Minute, 1)
	asks("long unanswered", 5*time.Minute, 2)
	p.result = &consolidation.Result{Took: 3 * time.Second}
	asks("answered", 20*time.Second, 2)
	asks("too soon", 9*time.Second, 2)
	asks("ten times as long later", time.Second, 3)
}
