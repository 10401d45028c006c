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
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/kept"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// A node that has to end leaves its move, unless that drains it already.
func TestForcedNodesLeaveTheirMove(t *testing.T) {
	interrupt := func(w *world) {
		w.sync()
		if err := w.c.Interrupted(w.t.Context(), []capacity.Interruption{{InstanceID: "i-b", Kind: capacity.SpotInterrupted, Ends: w.clock.Now().Add(5 * time.Minute)}})[0]; err != nil {
			w.t.Fatal(err)
		}
	}
	t.Run("reserved", func(t *testing.T) {
		w, p := reserved(t)
		interrupt(w)
		p.ready = true
		w.mustPass()
		if !slices.Contains(p.calls, "forget m1") || len(w.deleted) > 0 {
			t.Errorf("calls %q, deleted %v", p.calls, w.deleted)
		}
		if w.fenced["node-a"] || disrupted(w.node("node-a")) || !w.fenced["node-b"] || !disrupted(w.node("node-b")) {
			t.Errorf("fenced %v", w.fenced)
		}
		if diff := cmp.Diff([]string{"web-b"}, w.asked["node-b"]); diff != "" {
			t.Errorf("replaced (-want +got):\n%s", diff)
		}
		if !w.event("b Normal ConsolidationGivenUp: The node is not drained to save money: node node-b has to end: EC2 takes its spot capacity back") {
			t.Errorf("nobody is told: %q", w.events)
		}
	})
	t.Run("draining", func(t *testing.T) {
		w, p := reserved(t)
		w.c.passes.terminations.brake = brake.New(1)
		p.ready = true
		w.mustPass()
		if diff := cmp.Diff([]string{"a"}, w.deleted); diff != "" {
			t.Fatalf("deleted (-want +got):\n%s", diff)
		}
		interrupt(w)
		w.mustPass()
		if len(w.asked) > 0 || slices.Contains(p.calls, "forget m1") {
			t.Errorf("asked %v, calls %q", w.asked, p.calls)
		}
		w.clock.Step(5 * time.Minute)
		w.mustPass()
		if diff := cmp.Diff([]string{"a", "b"}, w.deleted); diff != "" {
			t.Errorf("deleted (-want +got):\n%s", diff)
		}
	})
	t.Run("replaced before the result came", func(t *testing.T) {
		w, p := consolidating(t)
		w.machine("a")
		w.machine("b")
		w.bind("web-b", "node-b", controlled)
		w.bind("web-a", "node-a", controlled)
		interrupt(w)
		w.mustPass()
		p.result = &consolidation.Result{Moves: []consolidation.Due{due("m1", []string{"node-a", "node-b"})}}
		w.fenced["node-a"] = true
		w.mustPass()
		if !slices.Contains(p.calls, "forget m1") || w.fenced["node-a"] || !w.fenced["node-b"] || !disrupted(w.node("node-b")) {
			t.Errorf("calls %q, fenced %v", p.calls, w.fenced)
		}
	})
}

// Once a claim is deleted the others follow: as the brake allows, and when a deletion fails.
func TestTheOtherNodesFollow(t *testing.T) {
	for name, tc := range map[string]struct{ stop, resume func(w *world) }{
		"brake": {func(w *world) { w.c.passes.terminations.brake = brake.New(1) }, func(w *world) { w.clock.Step(time.Minute) }},
		"failure": {func(w *world) {
			w.interrupt = func(call string) { w.failDelete = call == "delete" && len(w.deleted) > 0 }
		}, func(w *world) { w.interrupt, w.failDelete = func(string) {}, false }},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := reserved(t)
			p.ready = true
			tc.stop(w)
			if _, err := w.pass(); (err != nil) != (name == "failure") {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a"}, w.deleted); diff != "" {
				t.Fatalf("deleted first (-want +got):\n%s", diff)
			}
			p.lost = errors.New("it doesn't matter any more")
			tc.resume(w)
			w.mustPass()
			if diff := cmp.Diff([]string{"a", "b"}, w.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
			if slices.Contains(p.calls, "forget m1") || !w.fenced["node-b"] || !disrupted(w.node("node-b")) {
				t.Errorf("calls %q, fenced %v", p.calls, w.fenced)
			}
		})
	}
}

// The answer to the first deletion is lost: the move goes on, since it may have worked. If it never does, the move is given up.
func TestMoveWhoseDeletionsFail(t *testing.T) {
	t.Run("worked", func(t *testing.T) {
		w, p := reserved(t)
		p.ready = true
		w.freeze()
		w.loseDelete = true
		if _, err := w.pass(); err == nil {
			t.Fatal("the failure was not reported")
		}
		w.loseDelete, w.stale = false, nil
		w.mustPass()
		w.clock.Step(time.Hour)
		w.mustPass()
		if !disrupted(w.node("node-a")) || !disrupted(w.node("node-b")) || slices.Contains(p.calls, "forget m1") {
			t.Errorf("calls %q", p.calls)
		}
	})
	t.Run("refused", func(t *testing.T) {
		w, p := reserved(t)
		p.ready = true
		w.failDelete = true
		for range 2 {
			if _, err := w.pass(); err == nil {
				t.Fatal("the failure was not reported")
			}
			if slices.Contains(p.calls, "forget m1") || !disrupted(w.node("node-a")) {
				t.Fatalf("calls %q", p.calls)
			}
			w.clock.Step(moveTimeout)
		}
		w.clock.Step(time.Second)
		w.mustPass()
		undone(t, w, p)
	})
}

// Nodes of a reserved move don't end for being empty, and count against the budgets for that.
func TestMovesAndEmptyNodes(t *testing.T) {
	w, p := reserved(t, func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "2"}} })
	w.machine("empty")
	w.unbind("web-a")
	w.mustPass()
	if len(w.deleted) > 0 {
		t.Errorf("deleted %v", w.deleted)
	}
	w.clock.Step(askAgain)
	w.mustPass()
	if got := p.asked[len(p.asked)-1].Pools["default"].Budgets; got[consolidation.Underutilized] != 0 || got[consolidation.Empty] != 0 {
		t.Errorf("budgets %v", got)
	}
}

// Budgets count nodes that are being disrupted, replaced, or in moves.
func TestBudgetsOfMoves(t *testing.T) {
	w, p := reserved(t, func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "80%"}} })
	for i := range 5 {
		w.machine(fmt.Sprintf("other-%d", i))
		w.bind(fmt.Sprintf("web-other-%d", i), fmt.Sprintf("node-other-%d", i), controlled)
	}
	w.sync()
	if err := w.changeNode("node-other-0", func(n *corev1.Node) { n.Status.Conditions = nil }); err != nil {
		t.Fatal(err)
	}
	if err := w.c.Interrupted(t.Context(), []capacity.Interruption{{InstanceID: "i-other-1", Kind: capacity.SpotInterrupted, Ends: w.clock.Now().Add(5 * time.Minute)}})[0]; err != nil {
		t.Fatal(err)
	}
	w.mustPass() // replaces other-1
	p.result = &consolidation.Result{}
	w.clock.Step(askEvery)
	w.mustPass()
	if got := p.asked[len(p.asked)-1].Pools["default"].Budgets[consolidation.Underutilized]; got != 8-4 {
		t.Errorf("%d are left of 8, of which 2 are in a move, one is replaced and one isn't Ready", got)
	}
}

// Requests are made every ten seconds, not while one is unanswered, and at once after a move has ended.
func TestAsking(t *testing.T) {
	w, p := consolidating(t)
	w.machine("a")
	w.bind("web", "node-a", controlled)
	expect := func(n int, when string) {
		t.Helper()
		w.mustPass()
		if len(p.asked) != n {
			t.Fatalf("%s: asked %d times, want %d", when, len(p.asked), n)
		}
	}
	expect(1, "at first")
	w.clock.Step(time.Minute)
	expect(1, "unanswered")
	w.clock.Step(askAgain)
	expect(2, "unanswered for long")
	p.result = &consolidation.Result{}
	expect(2, "answered soon")
	w.clock.Step(askEvery)
	expect(3, "answered")
	p.result = &consolidation.Result{Moves: []consolidation.Due{due("m1", []string{"node-a"})}}
	expect(3, "with a move")
	p.lost = errors.New("lost")
	expect(4, "after a move has ended")
	w.c.passes.hold = func() error { return errors.New("another controller leads") }
	p.result = &consolidation.Result{}
	w.clock.Step(askEvery)
	expect(4, "held back")
	if p.result == nil {
		t.Error("the result was taken while held back")
	}
}

// In a dry run nothing is reserved, and each move is reported once.
func TestDryRunOfMoves(t *testing.T) {
	w, p := consolidating(t)
	w.dryRun()
	w.machine("a")
	w.bind("web", "node-a", controlled)
	for range 3 {
		p.result = &consolidation.Result{Moves: []consolidation.Due{due("", []string{"node-a"})}}
		w.mustPass()
		w.clock.Step(askEvery)
	}
	if !p.asked[0].ProposeOnly || len(p.calls) > 0 || len(w.deleted) > 0 {
		t.Errorf("calls %q, deleted %v", p.calls, w.deleted)
	}
	n := 0
	for _, e := range w.events {
		if e == "a Normal DisruptionDryRun: Would terminate the node: its pods fit on nodes that cost $0.5000/h less" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("told %d times: %q", n, w.events)
	}
}

// A taint is left over unless its node is in a move; moves that were forgotten with the process leave nothing.
func TestTaintsOfMoves(t *testing.T) {
	w, p := reserved(t)
	p.ready = true
	w.interrupt = func(call string) {
		if call == "list" { // crashes before the deletion
			panic("killed")
		}
	}
	func() {
		defer func() { _ = recover() }()
		w.mustPass()
	}()
	w.interrupt = func(string) {}
	if !disrupted(w.node("node-a")) || len(w.deleted) > 0 {
		t.Fatalf("deleted %v", w.deleted)
	}
	c, err := New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.c = c
	w.mustPass()
	if disrupted(w.node("node-a")) || disrupted(w.node("node-b")) || len(w.fenced) > 0 || len(w.deleted) > 0 {
		t.Errorf("fenced %v, deleted %v", w.fenced, w.deleted)
	}
}

// Why a node is kept is written once, and again when the kind or what it is about changes; numbers alone every 15 minutes.
func TestKept(t *testing.T) {
	w, p := consolidating(t)
	w.machine("a")
	w.bind("web", "node-a", controlled)
	paying := func(accrued float64) consolidation.Kept {
		return consolidation.Kept{Node: "node-a", Kind: consolidation.Paying, Saves: 1, Cost: 2, Accrued: accrued}
	}
	full := func(pod string) consolidation.Kept {
		return consolidation.Kept{Node: "node-a", Kind: consolidation.Full, Pod: capacity.PodRef{Namespace: "d", Name: pod}}
	}
	quiet := func(at time.Duration) consolidation.Kept {
		return consolidation.Kept{Node: "node-a", Kind: consolidation.NotQuiet, Until: epoch.Add(at)}
	}
	events, wrote, wroteAt := 0, "", ""
	for i, step := range []struct {
		after  time.Duration
		kept   consolidation.Kept
		want   string
		events int
	}{
		{0, paying(0.5), "Paying: emptying it would save $1.0000/h; $0.5000 of $2.0000 have accrued that it costs to move its pods", 1},
		{10 * time.Second, paying(0.6), "Paying: emptying it would save $1.0000/h; $0.5000 of $2.0000 have accrued that it costs to move its pods", 0},
		{15 * time.Minute, paying(0.7), "Paying: emptying it would save $1.0000/h; $0.7000 of $2.0000 have accrued that it costs to move its pods", 0},
		{kept.Every, full("x"), "Full: there is no other place for pod d/x", 1},
		{10 * time.Second, full("y"), "Full: there is no other place for pod d/x", 0},
		{kept.Every, full("y"), "Full: there is no other place for pod d/y", 0},
		{kept.Every, quiet(time.Hour), "NotQuiet: pods came or went: consolidateAfter is over at 2026-03-01T13:00:00Z", 1},
		{kept.Every, quiet(2 * time.Hour), "NotQuiet: pods came or went: consolidateAfter is over at 2026-03-01T13:00:00Z", 0},
	} {
		w.clock.Step(step.after)
		p.result = &consolidation.Result{Kept: []consolidation.Kept{step.kept}}
		w.mustPass()
		if got := w.claim("a").Annotations[objects.AnnotationKept]; got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		if got := w.claim("a").Annotations[objects.AnnotationKept]; got != wrote {
			wrote, wroteAt = got, w.clock.Now().UTC().Format(time.RFC3339)
		}
		if got := w.claim("a").Annotations[objects.AnnotationKeptSince]; got != wroteAt {
			t.Errorf("step %d: written at %q, want %q: with the reason, and not without it", i, got, wroteAt)
		}
		events += step.events
		n := 0
		for _, e := range w.events {
			if strings.HasPrefix(e, "a Normal Unconsolidatable: The node is kept: ") {
				n++
			}
		}
		if n != events {
			t.Errorf("step %d: %d events, want %d: %q", i, n, events, w.events)
		}
	}
	before := w.claim("a").ResourceVersion
	c, err := New(w.cfg) // another process
	if err != nil {
		t.Fatal(err)
	}
	w.c = c
	p.result = &consolidation.Result{Kept: []consolidation.Kept{quiet(3 * time.Hour)}}
	w.mustPass()
	if w.claim("a").ResourceVersion != before {
		t.Error("written again after a restart")
	}
	w.machine("receiver")
	w.bind("web-receiver", "node-receiver", controlled, web)
	p.result = &consolidation.Result{Moves: []consolidation.Due{due("m1", []string{"node-a"})}}
	p.ready = true
	w.mustPass()
	if claim := w.claim("a"); claim.DeletionTimestamp == nil || claim.Annotations[objects.AnnotationKept] != "" || claim.Annotations[objects.AnnotationKeptSince] != "" {
		t.Errorf("deleted %v, annotations %v", w.deleted, claim.Annotations)
	}
}

// That a node isn't initialized says nothing while it boots, and would be read for a minute after that.
func TestStartingNodesAreNotAnnotated(t *testing.T) {
	w, p := consolidating(t)
	w.machine("a", func(_ *karpv1.NodeClaim, n *corev1.Node) { delete(n.Labels, karpv1.NodeInitializedLabelKey) })
	w.bind("web", "node-a", controlled)
	p.result = &consolidation.Result{Kept: []consolidation.Kept{{Node: "node-a", Kind: consolidation.NotReady, Message: "it isn't initialized"}}}
	w.mustPass()
	if got := w.claim("a").Annotations[objects.AnnotationKept]; got != "" || len(w.events) > 0 {
		t.Errorf("a starting node has the annotation %q and the events %q", got, w.events)
	}
	if err := w.changeNode("node-a", func(n *corev1.Node) { n.Labels[karpv1.NodeInitializedLabelKey] = "true" }); err != nil {
		t.Fatal(err)
	}
	p.result = &consolidation.Result{Kept: []consolidation.Kept{{Node: "node-a", Kind: consolidation.PolicyWhenEmpty}}}
	w.mustPass()
	if got, want := w.claim("a").Annotations[objects.AnnotationKept], "WhenEmpty: the pool consolidates empty nodes only"; got != want {
		t.Errorf("once it is initialized it has the annotation %q, want %q", got, want)
	}
}

// No more than twenty claims are annotated per pass, and the others in the next ones. A failed write is repeated.
func TestKeptNodesInTurn(t *testing.T) {
	w, p := consolidating(t)
	var kept []consolidation.Kept
	for i := range 50 {
		name := fmt.Sprintf("n%d", i)
		w.machine(name)
		w.bind("web-"+name, "node-"+name, controlled)
		kept = append(kept, consolidation.Kept{Node: "node-" + name, Kind: consolidation.NoPrice})
	}
	p.result = &consolidation.Result{Kept: kept}
	w.failPatch = true
	w.mustPass()
	w.failPatch = false
	for pass, want := range []int{20, 40, 50, 50} {
		w.mustPass()
		n := 0
		for i := range 50 {
			if w.claim(fmt.Sprintf("n%d", i)).Annotations[objects.AnnotationKept] == "NoPrice: the price of the node is unknown" {
				n++
			}
		}
		if n != want {
			t.Errorf("pass %d: %d claims have the annotation, want %d", pass, n, want)
		}
	}
}

func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		name string
		pool func(*karpv1.NodePool)
		want consolidation.Policy
	}{
		{name: "nothing set", pool: func(*karpv1.NodePool) {}, want: consolidation.DefaultPolicy()},
		{name: "everything", pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidationPolicy = "Balanced"
			p.Annotations = map[string]string{objects.AnnotationRestartCost: "0s", objects.AnnotationSpotFlexibility: "5"}
		}, want: consolidation.Policy{Consolidate: consolidation.Balanced, FirstHour: time.Hour, SpotFlexibility: 5}},
		{name: "malformed", pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationRestartCost: "soon", objects.AnnotationSpotFlexibility: "0"}
		}, want: consolidation.DefaultPolicy()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, p := consolidating(t, tc.pool)
			w.machine("a")
			for range 2 {
				w.mustPass()
				p.result = &consolidation.Result{}
				w.clock.Step(askEvery)
			}
			tc.want.Budgets = map[consolidation.Reason]int{consolidation.Underutilized: 0, consolidation.Drifted: 0} // the only node is empty and goes
			if diff := cmp.Diff(tc.want, p.asked[0].Pools["default"]); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
			var ignored []string
			for _, e := range w.events {
				if strings.Contains(e, "AnnotationIgnored") {
					ignored = append(ignored, e)
				}
			}
			if tc.name != "malformed" {
				return
			}
			if diff := cmp.Diff([]string{
				`default Warning AnnotationIgnored: The annotation dovetail.sh/restart-cost: "soon" of NodePool default is ignored: it must be a duration of zero or more, like "10m"`,
				`default Warning AnnotationIgnored: The annotation dovetail.sh/spot-flexibility: "0" of NodePool default is ignored: it must be a whole number of one or more, like "5"`,
			}, ignored); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Pods of one controller with the same malformed annotation are reported once.
func TestMalformedAnnotationOfPods(t *testing.T) {
	w, _ := consolidating(t)
	w.machine("a")
	for i := range 3 {
		w.bind(fmt.Sprintf("web-%d", i), "node-a", controlled, annotated(objects.AnnotationRestartCost, "-1m"))
	}
	w.mustPass()
	n := 0
	for _, e := range w.events {
		if strings.Contains(e, `Warning AnnotationIgnored: The annotation dovetail.sh/restart-cost: "-1m" of Pod default/web-`) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d events: %q", n, w.events)
	}
}

// A pause between the deletions of a move's claims: the nodes that are left stay, without taint, and without cordon when the others are gone.
func TestPauseBetweenDeletions(t *testing.T) {
	w, p := reserved(t)
	w.c.passes.terminations.brake = brake.New(1)
	p.ready = true
	w.mustPass()
	if diff := cmp.Diff([]string{"a"}, w.deleted); diff != "" {
		t.Fatalf("deleted (-want +got):\n%s", diff)
	}
	w.changePool(func(p *karpv1.NodePool) { p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"} })
	w.clock.Step(time.Minute)
	w.mustPass()
	if disrupted(w.node("node-b")) || !disrupted(w.node("node-a")) || len(w.deleted) != 1 {
		t.Errorf("node-b is tainted: %v, deleted %v", disrupted(w.node("node-b")), w.deleted)
	}
	if !w.event("b Normal ConsolidationGivenUp: The node is not drained to save money: disruption of NodePool default is paused") {
		t.Errorf("nobody is told: %q", w.events)
	}
	w.gone("a")
	w.mustPass()
	if w.fenced["node-b"] || len(w.c.passes.consolidations.moves.open.list) > 0 || !w.alive("b") {
		t.Errorf("fenced %v, open %v", w.fenced, w.c.passes.consolidations.moves.open.list)
	}
}
