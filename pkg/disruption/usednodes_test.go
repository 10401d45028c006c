package disruption

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Each candidate says why it can't be emptied.
func TestWhatBlocksAUsedNode(t *testing.T) {
	bad := func(text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{"no-class": text} }
	}
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: new(true)}}
	}
	for _, tc := range []struct {
		name  string
		pool  func(*karpv1.NodePool)
		node  func(*karpv1.NodeClaim, *corev1.Node)
		setup func(w *world)
		empty bool // no pod web
		kind  consolidation.Kind
		text  string
	}{
		{name: "nothing"},
		{name: "a pod that asks", kind: consolidation.Protected, text: "pod default/x asks not to be disrupted", setup: func(w *world) {
			w.bind("x", "node-a", controlled, annotated(karpv1.DoNotDisruptAnnotationKey, "true"))
		}},
		{name: "a DaemonSet's pod that asks", kind: consolidation.Protected, text: "pod default/x asks not to be disrupted", setup: func(w *world) {
			w.bind("x", "node-a", daemon, annotated(karpv1.DoNotDisruptAnnotationKey, "true"))
		}},
		{name: "the node asks", kind: consolidation.Protected, text: "the node asks not to be disrupted", node: func(c *karpv1.NodeClaim, n *corev1.Node) {
			n.Annotations = map[string]string{"karpenter.sh/do-not-consolidate": "true"}
		}},
		{name: "the claim asks", kind: consolidation.Protected, text: "the node asks not to be disrupted", node: func(c *karpv1.NodeClaim, n *corev1.Node) {
			c.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		}},
		{name: "pods came lately", kind: consolidation.NotQuiet, text: "pods came or went: consolidateAfter is over at 2026-03-01T14:00:30Z", pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("1m")
		}, setup: func(w *world) { w.activity["node-a"] = epoch.Add(2*time.Hour - 30*time.Second) }},
		{name: "pods came lately, and the pool keeps used nodes", kind: consolidation.PolicyWhenEmpty, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter, p.Spec.Disruption.ConsolidationPolicy = karpv1.MustParseNillableDuration("1m"), karpv1.ConsolidationPolicyWhenEmpty
		}, setup: func(w *world) { w.activity["node-a"] = epoch.Add(2*time.Hour - 30*time.Second) }},
		{name: "disabled", kind: consolidation.Disabled, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		}},
		{name: "static", kind: consolidation.Static, pool: func(p *karpv1.NodePool) { p.Spec.Replicas = new(int64) }},
		{name: "paused", kind: consolidation.Paused, text: "disruption is paused: NodePool default has the annotation dovetail.sh/pause-disruption", pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
		}},
		{name: "not initialized", kind: consolidation.NotReady, text: "the node isn't ready: it isn't initialized", node: func(_ *karpv1.NodeClaim, n *corev1.Node) {
			delete(n.Labels, karpv1.NodeInitializedLabelKey)
		}},
		{name: "not Ready", kind: consolidation.NotReady, node: func(_ *karpv1.NodeClaim, n *corev1.Node) { n.Status.Conditions = nil }},
		{name: "Node is being deleted", kind: consolidation.NotReady, node: func(_ *karpv1.NodeClaim, n *corev1.Node) {
			n.Finalizers, n.DeletionTimestamp = []string{"x"}, &metav1.Time{Time: epoch}
		}},
		{name: "empty", empty: true, kind: consolidation.OtherReason, text: "the node is empty: it is removed when consolidateAfter is over, as soon as the pool's disruption budgets allow",
			pool: func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} }, setup: func(w *world) { w.bind("d", "node-a", daemon) }},
		{name: "a pod without controller", kind: consolidation.Unmovable, text: "pod default/x can't be recreated elsewhere: it has no controller that would recreate it", setup: func(w *world) {
			w.bind("x", "node-a")
		}},
		{name: "one that costs nothing", setup: func(w *world) {
			w.bind("x", "node-a", func(p *corev1.Pod) { p.Spec.Priority = new(int32(-1 << 25)) })
		}},
		{name: "one that is ending", setup: func(w *world) {
			w.bind("x", "node-a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: epoch.Add(3 * time.Hour)} })
		}},
		{name: "one that has ended", setup: func(w *world) { w.bind("x", "node-a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }) }},
		{name: "another scheduler's pod", kind: consolidation.Unmovable, setup: func(w *world) {
			w.bind("x", "node-a", controlled, func(p *corev1.Pod) { p.Spec.SchedulerName = "another" })
		}, text: "pod default/x can't be recreated elsewhere: another scheduler places it (another), so no capacity can be reserved for it"},
		{name: "another scheduler's DaemonSet", setup: func(w *world) {
			w.bind("x", "node-a", daemon, func(p *corev1.Pod) { p.Spec.SchedulerName = "another" })
		}},
		{name: "a pod that tolerates the taint", kind: consolidation.Unmovable, setup: func(w *world) { w.bind("x", "node-a", controlled, tolerant) }},
		{name: "a pod without class", kind: consolidation.Unmovable, text: "pod default/x can't be recreated elsewhere: its volume is gone", setup: func(w *world) {
			w.bind("x", "node-a", controlled, bad("its volume is gone"))
		}},
		{name: "a budget", kind: consolidation.BlockedByPDB, text: "the PodDisruptionBudget pdb allows no eviction of pod default/web", setup: func(w *world) { w.pdb("pdb") }},
		{name: "empty, and a budget", empty: true, kind: consolidation.BlockedByPDB, text: "the PodDisruptionBudget pdb allows no eviction of pod default/d",
			pool: func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} }, setup: func(w *world) {
				w.pdb("pdb")
				w.bind("d", "node-a", daemon, web)
			}},
		{name: "the claim is being deleted", kind: consolidation.Disrupting, text: "the node is being disrupted: its NodeClaim is being deleted", setup: func(w *world) {
			if err := w.claims.Delete(w.t.Context(), w.claim("a")); err != nil {
				w.t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			change := tc.pool
			if change == nil {
				change = func(*karpv1.NodePool) {}
			}
			w, p := consolidating(t, change)
			if tc.node == nil {
				tc.node = func(*karpv1.NodeClaim, *corev1.Node) {}
			}
			w.machine("a", tc.node)
			if !tc.empty {
				w.bind("web", "node-a", controlled, web)
			}
			if tc.setup != nil {
				tc.setup(w)
			}
			w.clock.Step(2 * time.Hour)
			w.mustPass()
			if len(p.asked) != 1 || len(p.asked[0].Candidates) != 1 {
				t.Fatalf("asked %v", p.asked)
			}
			got := p.asked[0].Candidates[0].Blocked
			if got == nil {
				got = &consolidation.Kept{}
			}
			if got.Kind != tc.kind || tc.text != "" && got.Text() != tc.text {
				t.Errorf("%s: %s, want %s: %s", got.Kind, got.Text(), tc.kind, tc.text)
			}
		})
	}
}

func TestPodDisruptionBudgets(t *testing.T) {
	allows := func(n int32) func(*policyv1.PodDisruptionBudget) {
		return func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = n }
	}
	always := func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow) }
	unready := func(p *corev1.Pod) { p.Status.Conditions = nil }
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	for _, tc := range []struct {
		name  string
		setup func(w *world)
		pod   func(*corev1.Pod)
		want  string
	}{
		{name: "none"},
		{name: "allows one", setup: func(w *world) { w.pdb("x", allows(1)) }},
		{name: "allows none", setup: func(w *world) { w.pdb("x") }, want: "x"},
		{name: "of other pods", setup: func(w *world) {
			w.pdb("x", func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels["app"] = "db" })
		}},
		{name: "of another namespace", setup: func(w *world) { w.pdb("x", func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" }) }},
		{name: "without selector", setup: func(w *world) { w.pdb("x", func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil }) }},
		{name: "with an empty one", setup: func(w *world) {
			w.pdb("x", func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = &metav1.LabelSelector{} })
		}, want: "x"},
		{name: "with one that can't be read", setup: func(w *world) {
			w.pdb("x", func(b *policyv1.PodDisruptionBudget) {
				b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
			})
		}, want: "x"},
		{name: "that its controller hasn't seen", setup: func(w *world) {
			w.pdb("x", allows(1), func(b *policyv1.PodDisruptionBudget) { b.Generation, b.Status.ObservedGeneration = 2, 1 })
		}, want: "x"},
		{name: "two", setup: func(w *world) { w.pdb("x", allows(1)); w.pdb("y", allows(1)) }, want: "x (and y, but only one may cover a pod)"},
		{name: "of a pod that isn't Ready, with too few others", pod: unready, want: "x", setup: func(w *world) {
			w.pdb("x", func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy, b.Status.DesiredHealthy = 1, 2 })
		}},
		{name: "of a pod that isn't Ready, with enough others", pod: unready, setup: func(w *world) { w.pdb("x") }},
		{name: "of a pod that isn't Ready, AlwaysAllow", pod: unready, setup: func(w *world) {
			w.pdb("x", always, func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy, b.Status.DesiredHealthy = 1, 2 })
		}},
		{name: "AlwaysAllow, but Ready", setup: func(w *world) { w.pdb("x", always) }, want: "x"},
		{name: "of a pod that hasn't started", pod: pending, setup: func(w *world) { w.pdb("x") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, p := consolidating(t)
			w.machine("a")
			w.bind("web", "node-a", controlled, web, func(p *corev1.Pod) {
				if tc.pod != nil {
					tc.pod(p)
				}
			})
			if tc.setup != nil {
				tc.setup(w)
			}
			for range 2 { // remembered or not
				w.mustPass()
				w.clock.Step(askEvery)
				p.result = &consolidation.Result{}
			}
			for _, r := range p.asked {
				got := ""
				if b := r.Candidates[0].Blocked; b != nil {
					got = b.Name
				}
				if got != tc.want {
					t.Errorf("blocked by %q, want %q", got, tc.want)
				}
			}
			if len(p.asked) != 2 {
				t.Errorf("asked %d times", len(p.asked))
			}
		})
	}
}

// What is remembered of pods follows when budgets are added, changed and removed.
func TestPodDisruptionBudgetsThatChange(t *testing.T) {
	w, p := consolidating(t)
	w.machine("a")
	w.bind("web", "node-a", controlled, web)
	w.sync()
	store := w.factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer()
	for i, step := range []struct {
		change func()
		want   bool
	}{
		{func() {}, false},
		{func() { w.pdb("x") }, true},
		{func() { w.pdb("x", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 1 }) }, false},
		{func() {
			w.pdb("a", func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels["app"] = "db" })
			w.pdb("x")
		}, true},
		{func() {
			w.pdb("x", func(b *policyv1.PodDisruptionBudget) {
				b.Generation, b.Status.ObservedGeneration = 2, 2
				b.Spec.Selector.MatchLabels["app"] = "db"
			})
		}, false},
		{func() {
			if err := store.Replace(nil, "2"); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		step.change()
		if _, _, err := w.c.passes.run(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
		w.clock.Step(askEvery)
		p.result = &consolidation.Result{}
		if got := p.asked[i].Candidates[0].Blocked != nil; got != step.want {
			t.Errorf("step %d: blocked %v", i, got)
		}
	}
}

// A candidate has the node's price, its pods with their classes and costs, and how long they take to drain.
func TestCandidate(t *testing.T) {
	w, p := consolidating(t)
	p.prices["a"], p.prices["b"] = 0.25, -1
	w.machine("a", func(c *karpv1.NodeClaim, _ *corev1.Node) {
		c.Labels[karpv1.CapacityTypeLabelKey] = karpv1.CapacityTypeSpot
		c.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Hour))
	})
	w.machine("b")
	w.machine("no-node", func(c *karpv1.NodeClaim, _ *corev1.Node) { c.Status.NodeName = "another" })
	w.machine("no-pool", func(c *karpv1.NodeClaim, _ *corev1.Node) { c.Labels[karpv1.NodePoolLabelKey] = "gone" })
	if err := w.factory.Core().V1().Namespaces().Informer().GetIndexer().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "default",
		Annotations: map[string]string{objects.AnnotationRestartCost: "1m"}}}); err != nil {
		t.Fatal(err)
	}
	w.pdb("pdb", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 2 })
	for i := range 3 {
		w.bind(fmt.Sprintf("web-%d", i), "node-a", controlled, web)
	}
	w.bind("slow", "node-a", controlled, annotated(objects.AnnotationRestartCost, "1h"), func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds, p.Spec.Priority = new(int64(50)), new(int32(1<<25))
	})
	w.bind("costless", "node-a", controlled, func(p *corev1.Pod) { p.Spec.Priority = new(int32(-1 << 25)) })
	w.bind("daemon", "node-a", owned("apps/v1", "DaemonSet"))
	w.mustPass()
	pod := func(name string, cost float64, restart time.Duration) consolidation.Pod {
		return consolidation.Pod{Ref: capacity.PodRef{UID: types.UID(name), Namespace: "default", Name: name}, Class: &capacity.Class{Key: "class"}, Owner: "rs", Cost: cost, Restart: &restart}
	}
	want := []consolidation.Candidate{
		{Node: "node-a", Pool: "default", Price: 0.25, CapacityType: "spot", CreatedAt: epoch.Add(-time.Hour), Drain: time.Minute, // two rounds of the budget
			Pods: []consolidation.Pod{pod("costless", 0, time.Minute), pod("slow", 2, time.Hour), pod("web-0", 1, time.Minute), pod("web-1", 1, time.Minute), pod("web-2", 1, time.Minute)}},
		{Node: "node-b", Pool: "default", Price: math.NaN(), Blocked: &consolidation.Kept{Kind: consolidation.Disrupting}, Ending: true},
	}
	if diff := cmp.Diff(want, p.asked[0].Candidates, cmpopts.EquateNaNs(), cmpopts.IgnoreFields(consolidation.Kept{}, "Message"), cmpopts.IgnoreUnexported(capacity.Class{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}

// Nodes that end within an hour or so get no pods of moves.
func TestEndingNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(w *world)
		want bool
	}{
		"expires later": {func(w *world) { w.clock.Step(10 * time.Hour) }, false},
		"expires soon":  {func(w *world) { w.clock.Step(23*time.Hour - 5*time.Minute) }, true},
		"expires soon, in a dry run": {func(w *world) {
			w.dryRun()
			w.clock.Step(23*time.Hour - 5*time.Minute)
		}, false},
		"expires soon in a paused pool": {func(w *world) {
			w.changePool(func(p *karpv1.NodePool) {
				p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
			})
			w.clock.Step(23*time.Hour - 5*time.Minute)
		}, false},
		"is empty":               {func(w *world) { w.unbind("web-a") }, true},
		"is empty, in a dry run": {func(w *world) { w.dryRun(); w.unbind("web-a") }, false},
		"is empty, for a long time": {func(w *world) {
			w.changePool(func(p *karpv1.NodePool) {
				p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("12h")
			})
			w.unbind("web-a")
		}, false},
		"is empty, and may be": {func(w *world) {
			w.changePool(func(p *karpv1.NodePool) {
				p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty}}}
			})
			w.unbind("web-a")
		}, false},
		"is empty, with capacity for a buffer": {func(w *world) { w.chunks["node-a"] = true; w.unbind("web-a") }, false},
		"is interrupted":                       {func(w *world) { w.interrupted("a", epoch.Add(10*time.Minute), capacity.MaintenanceScheduled) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := consolidating(t)
			w.machine("a", lives("24h"))
			w.bind("web-a", "node-a", controlled, web)
			tc.set(w)
			w.mustPass()
			if got := p.asked[0].Candidates[0].Ending; got != tc.want {
				t.Errorf("ends soon: %v, want %v", got, tc.want)
			}
		})
	}
}

// A node is no candidate again soon after a move of it failed, or after it took pods of one.
func TestNodesAfterMoves(t *testing.T) {
	w, p := reserved(t)
	latest := func() map[string]consolidation.Candidate {
		out := map[string]consolidation.Candidate{}
		for _, c := range p.asked[len(p.asked)-1].Candidates {
			out[c.Node] = c
		}
		return out
	}
	got := latest()
	if got["node-a"].Blocked == nil || got["node-a"].Blocked.Kind != consolidation.Disrupting || got["node-c"].Blocked != nil {
		t.Errorf("a: %v, c: %v", got["node-a"].Blocked, got["node-c"].Blocked)
	}
	if until := got["node-receiver"].ReceivedUntil; !until.Equal(epoch.Add(30 * time.Minute)) { // 0.25 / 0.5 hours
		t.Errorf("received until %s", until)
	}
	p.result = &consolidation.Result{}
	p.lost = errors.New("its capacity is lost")
	w.mustPass() // asks at once
	got = latest()
	if b := got["node-a"].Blocked; b == nil || b.Text() != "emptying it was given up, and is not tried again before 2026-03-01T12:15:00Z: its capacity is lost" {
		t.Errorf("a: %v", b)
	}
	if !got["node-receiver"].ReceivedUntil.IsZero() {
		t.Error("it has received nothing")
	}
	w.clock.Step(moveBackOff)
	p.result = &consolidation.Result{}
	w.mustPass()
	if b := latest()["node-a"].Blocked; b != nil {
		t.Errorf("a: %v", b)
	}
}

// Classes are worked out once for each pod, errors again after a minute.
func TestClassesAreRemembered(t *testing.T) {
	w, p := consolidating(t)
	w.machine("a")
	w.bind("good", "node-a", controlled)
	w.bind("bad", "node-a", controlled, func(p *corev1.Pod) { p.Labels = map[string]string{"no-class": "no volume"} })
	calls := map[string]int{}
	rules := w.c.passes.consolidations.nodes.rules
	successor := rules.Successor
	rules.Successor = func(p *corev1.Pod) (*capacity.Class, error) { calls[p.Name]++; return successor(p) }
	w.sync()
	for range 12 {
		if _, _, err := w.c.passes.run(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
		p.result = &consolidation.Result{}
		w.clock.Step(askEvery)
	}
	if diff := cmp.Diff(map[string]int{"good": 1, "bad": 2}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// BenchmarkCandidates is a request for 5,000 nodes with 20 pods each of which nothing has changed.
func BenchmarkCandidates(b *testing.B) {
	t := &testing.T{}
	w, p := consolidating(t)
	for i := range 5000 {
		name := fmt.Sprintf("n%d", i)
		w.machine(name)
		for j := range 20 {
			w.bind(fmt.Sprintf("%s-%d", name, j), "node-"+name, controlled, web)
		}
	}
	w.pdb("pdb", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 2 })
	w.sync()
	s, err := w.c.passes.read(b.Context(), time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	c := w.c.passes.consolidations
	for range 2 {
		if _, err := c.ask(s, w.clock.Now()); err != nil {
			b.Fatal(err)
		}
		c.asked, c.last = time.Time{}, time.Time{}
	}
	for b.Loop() {
		if _, err := c.ask(s, w.clock.Now()); err != nil {
			b.Fatal(err)
		}
		c.asked, c.last = time.Time{}, time.Time{}
	}
	if len(p.asked[0].Candidates) != 5000 {
		b.Fatal("not all nodes are candidates")
	}
}

// Pods that need another node and for which nothing can be planned belong to the disruption of the pool, as Karpenter's policy Balanced has it:
// pods without controller, protected ones, those without a class. Pods of DaemonSets, mirror pods and those that end don't.
func TestOtherPodsOfACandidate(t *testing.T) {
	w, p := consolidating(t)
	w.machine("a")
	w.bind("web", "node-a", controlled, web)
	w.bind("bare", "node-a")
	w.bind("protected", "node-a", controlled, annotated(karpv1.DoNotDisruptAnnotationKey, "true"), func(p *corev1.Pod) { p.Spec.Priority = new(int32(1 << 25)) })
	w.bind("no-class", "node-a", controlled, func(p *corev1.Pod) { p.Labels = map[string]string{"no-class": "a volume is missing"} })
	w.bind("costless", "node-a", func(p *corev1.Pod) { p.Spec.Priority = new(int32(-1 << 26)) })
	w.bind("daemon", "node-a", owned("apps/v1", "DaemonSet"))
	w.bind("mirror", "node-a", owned("v1", "Node"))
	w.bind("ended", "node-a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	w.bind("ending", "node-a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
	w.mustPass()
	if c := p.asked[0].Candidates[0]; len(c.Pods) != 1 || c.OtherPods != 1+2+1 {
		t.Errorf("%d pods, a cost of %v for others, want 1 and 4", len(c.Pods), c.OtherPods)
	}
}

// A move that was to save money, and failed, doesn't keep a node that has drifted since then from being replaced. A replacement that failed does.
func TestFailedMovesAndDrift(t *testing.T) {
	w, _ := reserved(t)
	v := w.c.passes.consolidations.moves
	m := &candidate{claim: w.claim("c"), node: &corev1.Node{}}
	blocked := func(forced bool) bool { return v.occupied(m, forced, w.clock.Now()) != nil }
	for _, step := range []struct{ moveForced, saving, replacing bool }{
		{moveForced: false, saving: true, replacing: false},
		{moveForced: true, saving: true, replacing: true},
	} {
		v.memory.fail(m, errors.New("its capacity is lost"), step.moveForced, true, w.clock.Now())
		if blocked(false) != step.saving || blocked(true) != step.replacing {
			t.Errorf("after a move that was forced: %t: moves that save money are blocked: %t, replacements: %t", step.moveForced, blocked(false), blocked(true))
		}
	}
}
