package disruption

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// drifted has a claim's node drifted since the clock's time.
func (w *world) drifted(name, reason string) {
	w.t.Helper()
	claim := w.claim(name)
	claim.StatusConditions(status.WithClock(w.clock)).SetTrueWithReason(karpv1.ConditionTypeDrifted, reason, reason)
	for i := range claim.Status.Conditions {
		if c := &claim.Status.Conditions[i]; c.Type == karpv1.ConditionTypeDrifted {
			c.LastTransitionTime = metav1.NewTime(w.clock.Now())
		}
	}
	if err := w.claims.Status().Update(w.t.Context(), claim); err != nil {
		if err := w.claims.Update(w.t.Context(), claim); err != nil {
			w.t.Fatal(err)
		}
	}
}

// undrifted takes that back.
func (w *world) undrifted(name string) {
	w.t.Helper()
	claim := w.claim(name)
	if err := claim.StatusConditions(status.WithClock(w.clock)).Clear(karpv1.ConditionTypeDrifted); err != nil {
		w.t.Fatal(err)
	}
	if err := w.claims.Update(w.t.Context(), claim); err != nil {
		w.t.Fatal(err)
	}
}

func created(at time.Time) func(*karpv1.NodeClaim, *corev1.Node) {
	return func(c *karpv1.NodeClaim, _ *corev1.Node) { c.CreationTimestamp = metav1.NewTime(at) }
}

// booting has a new claim's node not initialized.
func booting(c *karpv1.NodeClaim, n *corev1.Node) {
	delete(n.Labels, karpv1.NodeInitializedLabelKey)
	c.Status.Conditions = slices.DeleteFunc(c.Status.Conditions, func(x status.Condition) bool { return x.Type == karpv1.ConditionTypeInitialized })
}

// rolling is a world in which an hour has passed since its nodes were launched and what they come from changed.
func rolling(t *testing.T, change ...func(*karpv1.NodePool)) (*world, *planner) {
	t.Helper()
	w, p := consolidating(t, change...)
	w.machine("old", created(epoch.Add(-2*time.Hour)))
	w.bind("web-old", "node-old", controlled, web)
	w.clock.Step(time.Hour)
	w.drifted("old", "AMIDrift")
	return w, p
}

// latest makes a pass that asks, and returns what it has asked for.
func (w *world) latest(p *planner) (map[string]consolidation.Candidate, map[string]consolidation.Policy) {
	w.t.Helper()
	p.result = &consolidation.Result{}
	w.clock.Step(askEvery)
	w.mustPass()
	r := p.asked[len(p.asked)-1]
	out := map[string]consolidation.Candidate{}
	for _, c := range r.Candidates {
		out[c.Node] = c
	}
	return out, r.Pools
}

// A drifted node has to be emptied, whatever its pool says about consolidation, unless something forbids that.
func TestDriftedNodesAreForced(t *testing.T) {
	protectedPod := func(w *world) {
		w.bind("x", "node-old", controlled, annotated(karpv1.DoNotDisruptAnnotationKey, "true"))
	}
	deadline := func(c *karpv1.NodeClaim) {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	}
	for _, tc := range []struct {
		name    string
		pool    func(*karpv1.NodePool)
		claim   func(*karpv1.NodeClaim)
		setup   func(w *world)
		forced  bool
		blocked consolidation.Kind
		pods    int
	}{
		{name: "by default", forced: true, pods: 1},
		{name: "consolidateAfter: Never", forced: true, pods: 1, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		}},
		{name: "pods came lately", forced: true, pods: 1, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("10h")
		}},
		{name: "WhenEmpty", forced: true, pods: 1, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
		}},
		{name: "a budget of none", pods: 1, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}}}
		}},
		{name: "paused", pods: 1, blocked: consolidation.Paused, pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
		}},
		{name: "static", pods: 1, blocked: consolidation.Static, pool: func(p *karpv1.NodePool) { p.Spec.Replicas = new(int64(1)) }},
		{name: "a pod asks not to be disrupted", forced: true, pods: 1, blocked: consolidation.Protected, setup: protectedPod},
		{name: "a pod asks, and there is a terminationGracePeriod", forced: true, pods: 2, claim: deadline, setup: protectedPod},
		{name: "a budget of pods", forced: true, pods: 1, blocked: consolidation.BlockedByPDB, setup: func(w *world) { w.pdb("pdb") }},
		{name: "a budget of pods, and there is a terminationGracePeriod", forced: true, pods: 1, claim: deadline, setup: func(w *world) { w.pdb("pdb") }},
		{name: "the node asks, and there is a terminationGracePeriod", forced: true, pods: 1, blocked: consolidation.Protected, claim: func(c *karpv1.NodeClaim) {
			deadline(c)
			c.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			change := tc.pool
			if change == nil {
				change = func(*karpv1.NodePool) {}
			}
			w, p := rolling(t, change)
			if tc.claim != nil {
				claim := w.claim("old")
				tc.claim(claim)
				if err := w.claims.Update(t.Context(), claim); err != nil {
					t.Fatal(err)
				}
			}
			if tc.setup != nil {
				tc.setup(w)
			}
			got, _ := w.latest(p)
			c := got["node-old"]
			if (c.Forced == consolidation.Drifted) != tc.forced || tc.forced && !c.ForcedAt.Equal(epoch.Add(time.Hour)) {
				t.Errorf("forced %q since %s", c.Forced, c.ForcedAt)
			}
			kind := consolidation.Kind("")
			if c.Blocked != nil {
				kind = c.Blocked.Kind
			}
			if kind != tc.blocked && (tc.forced || tc.blocked != "") {
				t.Errorf("blocked: %+v, want %q", c.Blocked, tc.blocked)
			}
			if len(c.Pods) != tc.pods {
				t.Errorf("%d pods, want %d", len(c.Pods), tc.pods)
			}
		})
	}
}

// Empty drifted nodes end at once, as many as the budget for this reason allows, whatever consolidateAfter says.
func TestEmptyDriftedNodesEnd(t *testing.T) {
	for _, tc := range []struct {
		name   string
		budget karpv1.Budget
		dry    bool
		pause  bool
		want   []string
	}{
		{name: "all", budget: karpv1.Budget{Nodes: "100%"}, want: []string{"a", "b"}},
		{name: "one at a time, the oldest first", budget: karpv1.Budget{Nodes: "1", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}}, want: []string{"b"}},
		{name: "none", budget: karpv1.Budget{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}}},
		{name: "dry run", budget: karpv1.Budget{Nodes: "100%"}, dry: true},
		{name: "paused", budget: karpv1.Budget{Nodes: "100%"}, pause: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, _ := consolidating(t, func(p *karpv1.NodePool) {
				p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
				p.Spec.Disruption.Budgets = []karpv1.Budget{tc.budget}
				if tc.pause {
					p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
				}
			})
			if tc.dry {
				w.dryRun()
			}
			for _, name := range []string{"a", "b", "fresh"} {
				w.machine(name, created(epoch.Add(-time.Hour)))
			}
			w.chunks["node-a"], w.chunks["node-b"] = true, true // which are given up
			w.machine("used", created(epoch.Add(-time.Hour)))
			w.bind("web", "node-used", controlled, web)
			w.drifted("b", "AMIDrift")
			w.drifted("used", "AMIDrift")
			w.clock.Step(time.Minute)
			w.drifted("a", "AMIDrift")
			w.mustPass()
			slices.Sort(w.deleted)
			if diff := cmp.Diff(tc.want, w.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
			if tc.dry && !w.event("a Normal DisruptionDryRun: Would terminate the node: it is empty, and has drifted (AMIDrift)") {
				t.Errorf("nobody is told: %q", w.events)
			}
		})
	}
}

// replacing returns a move of the node old to one that is launched in the pool.
func replacing(claim string) consolidation.Due {
	d := due("m1", []string{"node-old"}, claim)
	d.Reason, d.Saves = consolidation.Drifted, -1
	d.New[0].Pool = &capacity.Pool{Name: "default"}
	return d
}

// record returns what is recorded on the pool.
func (w *world) record() (out karpenter.RollOut, there bool) {
	w.t.Helper()
	var pools karpv1.NodePoolList
	if err := w.claims.List(w.t.Context(), &pools); err != nil {
		w.t.Fatal(err)
	}
	return karpenter.RollOutOf(&pools.Items[0])
}

// A move for a drifted node is made although it saves nothing; its receivers are left alone for an hour.
func TestMoveOfADriftedNode(t *testing.T) {
	w, p := rolling(t)
	w.machine("receiver")
	w.bind("web-receiver", "node-receiver", controlled, web)
	w.latest(p)
	p.result = &consolidation.Result{Moves: []consolidation.Due{replacing("new")}}
	w.machine("new", created(w.clock.Now()), booting)
	w.mustPass()
	if !w.event("old Normal ReplacementPlanned: The node is going to be drained because it has drifted (AMIDrift): capacity for its pods is reserved on other nodes") {
		t.Errorf("nobody is told: %q", w.events)
	}
	p.ready = true
	w.mustPass()
	if diff := cmp.Diff([]string{"old"}, w.deleted); diff != "" {
		t.Fatalf("deleted (-want +got):\n%s%q", diff, w.events)
	}
	got, _ := w.latest(p)
	if until := got["node-receiver"].ReceivedUntil; until.Before(w.clock.Now()) || until.After(w.clock.Now().Add(time.Hour)) {
		t.Errorf("received until %s", until)
	}
}

// A move that hasn't begun is given up when the change is taken back, and when there is another one. New nodes may take longer than those of
// other moves to be there.
func TestDriftedMovesThatAreGivenUp(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *world)
		why    string // empty: it stays
	}{
		{"taken back", func(w *world) { w.undrifted("old") }, "node node-old isn't to be replaced any more: what its new nodes are launched from has changed"},
		{"another change", func(w *world) {
			w.changePool(func(p *karpv1.NodePool) { p.Spec.Template.Labels = map[string]string{"a": "b"} })
		}, "NodePool default, or its node class: what its new nodes are launched from has changed"},
		{"a pause", func(w *world) {
			w.changePool(func(p *karpv1.NodePool) {
				p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
			})
		}, "disruption of NodePool default is paused"},
		{"a slow boot", func(w *world) { w.clock.Step(2 * moveTimeout) }, ""},
		{"too slow a boot", func(w *world) { w.clock.Step(canaryMost + time.Second) }, "it could not begin within 45m"},
		{"WhenEmpty", func(w *world) {
			w.changePool(func(p *karpv1.NodePool) {
				p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
			})
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, p := rolling(t)
			w.machine("receiver")
			w.latest(p)
			p.result = &consolidation.Result{Moves: []consolidation.Due{replacing("new")}}
			w.machine("new", created(w.clock.Now()), booting)
			w.mustPass()
			tc.change(w)
			w.mustPass()
			given := slices.ContainsFunc(w.events, func(e string) bool {
				return strings.HasPrefix(e, "old Normal ReplacementMissing: The node, which has drifted, is not replaced now: "+tc.why)
			})
			if given != (tc.why != "") || slices.Contains(p.calls, "forget m1") != given {
				t.Errorf("calls %q, events %q", p.calls, w.events)
			}
		})
	}
}

// Where no drifted node may be replaced, nothing has to be proved before nodes are launched to save money.
func TestNoCanaryWithoutARollOut(t *testing.T) {
	for name, change := range map[string]func(*karpv1.NodePool){
		"a budget of none": func(p *karpv1.NodePool) {
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}}}
		},
		"paused": func(p *karpv1.NodePool) { p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"} },
	} {
		t.Run(name, func(t *testing.T) {
			w, p := rolling(t, change)
			if _, policies := w.latest(p); policies["default"].Canary != "" {
				t.Errorf("policy %+v", policies["default"])
			}
			if _, there := w.record(); !there {
				t.Error("nothing is recorded")
			}
		})
	}
}

// The first new node has to be initialized and hold a pod Ready for two minutes; until then no other is launched. A new leader knows that.
func TestCanaryProves(t *testing.T) {
	w, p := rolling(t)
	_, policies := w.latest(p)
	if pol := policies["default"]; pol.Canary != "NodePool/default" || pol.Held != "" || !p.asked[len(p.asked)-1].Probe {
		t.Fatalf("policy %+v", pol)
	}
	p.result = &consolidation.Result{Moves: []consolidation.Due{replacing("new")}}
	w.machine("new", created(w.clock.Now()))
	w.promised["node-new"] = true
	w.mustPass()
	held := "NodeClaim new of pool default is the first of its kind: the other nodes wait until a pod has been Ready there for 2m0s"
	for range 2 {
		if _, policies = w.latest(p); policies["default"].Held != held {
			t.Fatalf("policy %+v", policies["default"])
		}
		w.restart()
	}
	w.bind("web-new", "node-new", controlled, web, readyAt(w.clock.Now()))
	w.clock.Step(provedAfter - 2*askEvery)
	if _, policies = w.latest(p); policies["default"].Held != held {
		t.Fatalf("policy %+v", policies["default"])
	}
	if _, policies = w.latest(p); policies["default"].Canary != "" {
		t.Fatalf("policy %+v", policies["default"])
	}
	w.restart()
	w.unbind("web-new")
	if _, policies = w.latest(p); policies["default"].Canary != "" {
		t.Errorf("policy after a restart: %+v", policies["default"])
	}
	w.changePool(func(p *karpv1.NodePool) { p.Spec.Template.Labels = map[string]string{"a": "b"} })
	if _, policies = w.latest(p); policies["default"].Canary == "" {
		t.Errorf("policy after another change: %+v", policies["default"])
	}
	w.undrifted("old")
	w.latest(p)
	if r, there := w.record(); there {
		t.Errorf("left on the pool: %+v", r)
	}
}

// A node that was launched for pods that waited proves as much; while it isn't initialized no other is launched.
func TestAnyNewNodeProves(t *testing.T) {
	w, p := rolling(t)
	w.latest(p)
	w.machine("new", created(w.clock.Now()), booting)
	if _, policies := w.latest(p); policies["default"].Held != "NodeClaim new of pool default is the first of its kind, and isn't initialized yet" {
		t.Fatalf("policy %+v", policies["default"])
	}
	w.machine("other", created(w.clock.Now()))
	w.bind("web-other", "node-other", controlled, web, readyAt(w.clock.Now()))
	w.clock.Step(provedAfter)
	if _, policies := w.latest(p); policies["default"].Canary != "" {
		t.Errorf("policy %+v", policies["default"])
	}
}

// A canary that ends before has failed: a condition and an event say so, and the next one is later each time.
func TestCanaryFails(t *testing.T) {
	w, p := rolling(t)
	pause := canaryPause
	for i := range 3 {
		name := fmt.Sprint("new", i)
		if _, policies := w.latest(p); policies["default"].Held != "" {
			t.Fatalf("try %d: policy %+v", i, policies["default"])
		}
		p.result = &consolidation.Result{Moves: []consolidation.Due{replacing(name)}}
		w.machine(name, created(w.clock.Now()), booting)
		w.mustPass()
		p.lost = errors.New("its capacity is lost")
		if err := w.claims.Delete(t.Context(), w.claim(name)); err != nil {
			t.Fatal(err)
		}
		w.mustPass()
		p.lost = nil
		if r, _ := w.record(); r.Failed != i+1 || r.Until.Sub(w.clock.Now()).Round(time.Minute) != pause || len(r.Canaries) > 0 {
			t.Fatalf("try %d: %+v", i, r)
		}
		if !w.event(fmt.Sprintf("default Warning RollOutPaused: No drifted node is replaced before %s: NodeClaim %s, the first that is not drifted, ended before a pod had been Ready on its node for 2m0s",
			w.clock.Now().Add(pause).UTC().Format(time.RFC3339), name)) {
			t.Errorf("nobody is told: %q", w.events)
		}
		w.restart()
		w.clock.Step(pause - 2*askEvery)
		if _, policies := w.latest(p); policies["default"].Held == "" {
			t.Errorf("try %d: policy %+v", i, policies["default"])
		}
		w.clock.Step(2 * askEvery)
		pause *= 2
	}
}

// A canary that Dovetail ends because no pod came has not failed: the next one may be launched a little later.
func TestCanaryThatEndsEmpty(t *testing.T) {
	w, p := rolling(t, func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("1m") })
	w.latest(p)
	p.result = &consolidation.Result{Moves: []consolidation.Due{replacing("new")}}
	w.machine("new", created(w.clock.Now()))
	w.promised["node-new"] = true
	w.mustPass()
	p.lost = errors.New("its capacity is lost")
	w.promised["node-new"] = false
	w.clock.Step(time.Minute)
	w.mustPass()
	if diff := cmp.Diff([]string{"new"}, w.deleted); diff != "" {
		t.Fatalf("deleted (-want +got):\n%s", diff)
	}
	w.mustPass()
	w.gone("new")
	w.clock.Step(canarySeen)
	w.mustPass()
	if r, _ := w.record(); r.Failed > 0 || len(r.Canaries) > 0 || w.event("default Warning RollOutPaused") {
		t.Errorf("recorded: %+v; events %q", r, w.events)
	}
	w.clock.Step(canaryRest)
	if _, policies := w.latest(p); policies["default"].Held != "" {
		t.Errorf("policy %+v", policies["default"])
	}

	p.result, p.lost = &consolidation.Result{Moves: []consolidation.Due{replacing("next")}}, nil
	w.machine("next", created(w.clock.Now()))
	w.promised["node-next"] = true
	w.mustPass()
	p.lost = errors.New("its capacity is lost")
	w.promised["node-next"] = false
	for range 20 {
		w.clock.Step(time.Minute)
		w.mustPass()
	}
	if !slices.Contains(w.deleted, "next") {
		t.Fatalf("deleted %v", w.deleted)
	}
	w.gone("next")
	w.clock.Step(canarySeen)
	w.mustPass()
	if r, _ := w.record(); r.Failed != 1 {
		t.Errorf("the second one in a row counts as failed %d times, %+v", r.Failed, r)
	}
}

// The pods of drained nodes may be rejected by the canary's kubelet each time, so that it ends empty: only the first canary is forgiven that, by a
// new leader, too.
func TestCanariesThatEndEmptyAgain(t *testing.T) {
	w, p := rolling(t, func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("1m") })
	for i, want := range []struct {
		failed int
		pause  time.Duration
	}{{0, canaryRest}, {1, canaryPause}, {2, 2 * canaryPause}} {
		if _, policies := w.latest(p); policies["default"].Held != "" {
			t.Fatalf("canary %d: policy %+v", i, policies["default"])
		}
		name := fmt.Sprint("new", i)
		p.result = &consolidation.Result{Moves: []consolidation.Due{replacing(name)}}
		w.machine(name, created(w.clock.Now()))
		w.promised["node-"+name] = true
		w.mustPass()
		p.lost = errors.New("its capacity is lost")
		w.promised["node-"+name] = false
		w.clock.Step(time.Minute)
		w.mustPass()
		if w.alive(name) {
			t.Fatalf("canary %d is left", i)
		}
		p.lost = nil
		w.mustPass()
		if r, _ := w.record(); r.Failed != want.failed || len(r.Canaries) > 0 || (r.Failed > 0) != w.event("default Warning RollOutPaused") {
			t.Errorf("canary %d: %+v; events %q", i, r, w.events)
		}
		w.gone(name)
		if i > 0 {
			w.clock.Step(want.pause - 2*askEvery)
			if _, policies := w.latest(p); policies["default"].Held == "" {
				t.Errorf("canary %d: the next is launched before %s", i, want.pause)
			}
		}
		w.clock.Step(max(want.pause, canarySeen))
		w.restart()
	}
}

// One that takes too long has failed, too.
func TestCanaryTakesTooLong(t *testing.T) {
	w, p := rolling(t)
	w.latest(p)
	p.result = &consolidation.Result{Moves: []consolidation.Due{replacing("new")}}
	w.machine("new", created(w.clock.Now()))
	w.promised["node-new"] = true
	w.mustPass()
	w.clock.Step(canaryMost + time.Second)
	w.mustPass()
	if r, _ := w.record(); r.Failed != 1 || r.Why != "no pod has been Ready for 2m0s within 45m0s on the node of NodeClaim new, the first that is not drifted" {
		t.Errorf("%+v", r)
	}
}

// A node that drifts within ten minutes of its launch, though nothing has changed, is not replaced.
func TestNodesThatDriftAgain(t *testing.T) {
	w, p := rolling(t)
	w.latest(p)
	w.machine("new", created(w.clock.Now()))
	w.bind("web-new", "node-new", controlled, web)
	w.clock.Step(driftsAgain - time.Second)
	w.drifted("new", "SubnetDrift")
	got, _ := w.latest(p)
	if got["node-new"].Forced != "" || got["node-old"].Forced == "" {
		t.Errorf("new: %q, old: %q", got["node-new"].Forced, got["node-old"].Forced)
	}
	r, _ := w.record()
	if reason, why := r.Problem(); reason != "DriftsAgain" || !strings.HasPrefix(why, "NodeClaims new drifted within minutes of their launch") {
		t.Errorf("%s: %s", reason, why)
	}
	w.changePool(func(p *karpv1.NodePool) { p.Spec.Template.Labels = map[string]string{"a": "b"} })
	if got, _ = w.latest(p); got["node-new"].Forced == "" {
		t.Error("not replaced after a change")
	}
}

// readyAt has a pod Ready since then.
func readyAt(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}}
	}
}

// restart has another process go on.
func (w *world) restart() {
	w.t.Helper()
	c, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.c = c
}

// The pools of a node class wait for one node of all of them, until that has proved that what the class accounts for works.
func TestPoolsOfAClassWaitTogether(t *testing.T) {
	now := epoch
	r := func() *rollOuts {
		of := func(class, template string, change func(*rollOut)) *rollOut {
			p := &rollOut{class: class, key: "k", drifted: true}
			p.Template = template
			change(p)
			return p
		}
		none := func(*rollOut) {}
		return &rollOuts{pools: map[string]*rollOut{"a": of("x", "a", none), "b": of("x", "b", none), "c": of("y", "c", none)}}
	}
	policy := func(r *rollOuts, pool string) (out consolidation.Policy) {
		r.policy(pool, &out, now)
		return out
	}
	one := r()
	if a, b, c := policy(one, "a"), policy(one, "b"), policy(one, "c"); a.Canary != "NodeClass/x" || b.Canary != a.Canary || c.Canary != "NodeClass/y" || a.Held+b.Held+c.Held != "" {
		t.Errorf("a %+v, b %+v, c %+v", a, b, c)
	}
	one.of("a").Canaries = []string{"n"}
	if b, c := policy(one, "b"), policy(one, "c"); b.Held == "" || c.Held != "" {
		t.Errorf("with a canary in a: b %+v, c %+v", b, c)
	}
	one = r()
	one.of("a").Until, one.of("a").Why = now.Add(time.Minute), "it failed"
	if b := policy(one, "b"); b.Held == "" {
		t.Errorf("after a failure in a: b %+v", b)
	}
	one = r()
	one.of("a").Proved = true
	if a, b := policy(one, "a"), policy(one, "b"); a.Canary != "" || b.Canary != "NodePool/b" || b.Held != "" {
		t.Errorf("a has proved the class: a %+v, b %+v", a, b)
	}
}
