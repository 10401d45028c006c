package disruption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// static is a world with a static pool of two nodes, which have drifted: b first.
func static(t *testing.T, change ...func(*karpv1.NodePool)) *world {
	t.Helper()
	w, _ := consolidating(t, append([]func(*karpv1.NodePool){func(p *karpv1.NodePool) {
		p.Spec.Replicas = ptr.To[int64](2)
		p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
	}}, change...)...)
	for _, name := range []string{"a", "b"} {
		w.machine(name, created(epoch.Add(-time.Hour)))
		w.bind("web-"+name, "node-"+name, controlled, web)
	}
	w.drifted("b", "AMIDrift")
	w.clock.Step(time.Minute)
	w.drifted("a", "AMIDrift")
	return w
}

// gone has a claim's finalizers removed, so that it ends.
func (w *world) gone(name string) {
	w.t.Helper()
	claim := w.claim(name)
	claim.Finalizers = nil
	if err := w.claims.Update(w.t.Context(), claim); err != nil {
		w.t.Fatal(err)
	}
}

// A static pool gets one node more; when that has been initialized for two minutes, the node that has drifted for longest ends. Then it is
// the other one's turn.
func TestStaticNodesAreReplacedOneByOne(t *testing.T) {
	w := static(t)
	told := 0
	w.c.passes.spares.changed = func() { told++ }
	w.mustPass()
	if !w.c.Spare("default") || told != 1 || len(w.deleted) > 0 {
		t.Fatalf("no spare is wanted; told %d times, deleted %v", told, w.deleted)
	}
	w.machine("new", created(w.clock.Now()))
	w.mustPass()
	w.clock.Step(provedAfter - time.Second)
	w.mustPass()
	if !w.c.Spare("default") || len(w.deleted) > 0 {
		t.Fatalf("ended %v before the new node has been there for two minutes", w.deleted)
	}
	w.clock.Step(time.Second)
	w.mustPass()
	if diff := cmp.Diff([]string{"b"}, w.deleted); diff != "" || w.c.Spare("default") {
		t.Fatalf("deleted (-want +got):\n%s a spare is wanted: %v", diff, w.c.Spare("default"))
	}
	if !w.event("b Normal DisruptionTerminating: Terminating the node: it has drifted (AMIDrift), and NodeClaim new takes its place") {
		t.Errorf("nobody is told: %q", w.events)
	}
	w.mustPass()
	if w.c.Spare("default") {
		t.Error("another spare is wanted while a node is being ended, and the budget allows one")
	}
	w.gone("b")
	w.mustPass()
	if !w.c.Spare("default") {
		t.Error("no spare is wanted for the other node")
	}
	w.machine("new2", created(w.clock.Now()))
	w.clock.Step(provedAfter)
	w.mustPass()
	w.gone("a")
	w.mustPass()
	if diff := cmp.Diff([]string{"b", "a"}, w.deleted); diff != "" || w.c.Spare("default") {
		t.Errorf("deleted (-want +got):\n%s a spare is wanted: %v", diff, w.c.Spare("default"))
	}
}

// What keeps the nodes of a static pool, and what has its spare wait.
func TestNoSpare(t *testing.T) {
	for name, tc := range map[string]struct {
		pool   func(*karpv1.NodePool)
		change func(w *world)
	}{
		"a budget of none": {pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}}}
		}},
		"paused":  {pool: func(p *karpv1.NodePool) { p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"} }},
		"dry run": {change: func(w *world) { w.dryRun() }},
		"both ask not to be disrupted": {change: func(w *world) {
			for _, name := range []string{"a", "b"} {
				w.bind("x-"+name, "node-"+name, controlled, annotated(karpv1.DoNotDisruptAnnotationKey, "true"))
			}
		}},
		"both have a budget": {change: func(w *world) { w.pdb("pdb") }},
		"the change was taken back": {change: func(w *world) {
			w.undrifted("a")
			w.undrifted("b")
		}},
		"the pool is scaled in":  {pool: func(p *karpv1.NodePool) { p.Spec.Replicas = ptr.To[int64](0) }},
		"the pool is scaled out": {pool: func(p *karpv1.NodePool) { p.Spec.Replicas = ptr.To[int64](5) }},
		"a spare has just failed": {change: func(w *world) {
			w.mustPass()
			w.machine("new", created(w.clock.Now()), booting)
			w.mustPass()
			if err := w.claims.Delete(w.t.Context(), w.claim("new")); err != nil {
				w.t.Fatal(err)
			}
			w.gone("new")
			w.clock.Step(time.Minute)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(*karpv1.NodePool)
			if tc.pool != nil {
				changes = append(changes, tc.pool)
			}
			w := static(t, changes...)
			if tc.change != nil {
				tc.change(w)
			}
			w.deleted = nil
			w.mustPass()
			if w.c.Spare("default") || len(w.deleted) > 0 {
				t.Errorf("a spare is wanted, deleted %v", w.deleted)
			}
		})
	}
}
