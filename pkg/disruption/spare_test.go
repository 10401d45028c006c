package disruption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
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

// spare reports whether a spare is known to be wanted.
func (w *world) spare() bool {
	wanted, known := w.c.Spare("default")
	return wanted && known
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
	if !w.spare() || told != 1 || len(w.deleted) > 0 {
		t.Fatalf("no spare is wanted; told %d times, deleted %v", told, w.deleted)
	}
	w.machine("new", created(w.clock.Now()))
	w.mustPass()
	w.clock.Step(provedAfter - time.Second)
	w.mustPass()
	if !w.spare() || len(w.deleted) > 0 {
		t.Fatalf("ended %v before the new node has been there for two minutes", w.deleted)
	}
	w.clock.Step(time.Second)
	w.mustPass()
	if diff := cmp.Diff([]string{"b"}, w.deleted); diff != "" || w.spare() {
		t.Fatalf("deleted (-want +got):\n%s a spare is wanted: %v", diff, w.spare())
	}
	if !w.event("b Normal DisruptionTerminating: Terminating the node: it has drifted (AMIDrift), and NodeClaim new takes its place") {
		t.Errorf("nobody is told: %q", w.events)
	}
	w.mustPass()
	if w.spare() {
		t.Error("another spare is wanted while a node is being ended, and the budget allows one")
	}
	w.gone("b")
	w.mustPass()
	if !w.spare() {
		t.Error("no spare is wanted for the other node")
	}
	w.machine("new2", created(w.clock.Now()))
	w.clock.Step(provedAfter)
	w.mustPass()
	w.gone("a")
	w.mustPass()
	if diff := cmp.Diff([]string{"b", "a"}, w.deleted); diff != "" || w.spare() {
		t.Errorf("deleted (-want +got):\n%s a spare is wanted: %v", diff, w.spare())
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
			if w.spare() || len(w.deleted) > 0 {
				t.Errorf("a spare is wanted, deleted %v", w.deleted)
			}
		})
	}
}

// withSpare returns a static world with a spare that has just been initialized.
func withSpare(t *testing.T, change ...func(*karpv1.NodePool)) *world {
	t.Helper()
	w := static(t, change...)
	w.mustPass()
	w.machine("new", created(w.clock.Now()))
	w.mustPass()
	if !w.spare() {
		t.Fatal("no spare is wanted")
	}
	return w
}

// A spare that was launched stays as long as a drifted node is to be replaced, whatever keeps that node for a while: otherwise it would be ended, and
// launched again.
func TestSpareIsNotLaunchedTwice(t *testing.T) {
	for name, tc := range map[string]struct{ block, open func(w *world) }{
		"a budget of pods": {
			block: func(w *world) { w.pdb("pdb") },
			open: func(w *world) {
				w.pdb("pdb", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 1 })
			},
		},
		"pods that ask not to be disrupted": {
			block: func(w *world) {
				for _, name := range []string{"a", "b"} {
					w.bind("x-"+name, "node-"+name, controlled, annotated(karpv1.DoNotDisruptAnnotationKey, "true"))
				}
			},
			open: func(w *world) { w.unbind("x-a"); w.unbind("x-b") },
		},
		"a node that isn't Ready": {
			block: func(w *world) { w.unready("node-a") },
			open: func(w *world) {
				if err := w.changeNode("node-a", func(n *corev1.Node) {
					n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				}); err != nil {
					w.t.Fatal(err)
				}
			},
		},
		"a pause": {
			block: func(w *world) {
				w.changePool(func(p *karpv1.NodePool) { p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"} })
			},
			open: func(w *world) { w.changePool(func(p *karpv1.NodePool) { p.Annotations = nil }) },
		},
		"the brake": {
			block: func(w *world) { w.c.passes.terminations.brake.Take(w.clock.Now().Add(provedAfter)) },
			open:  func(w *world) { w.clock.Step(time.Minute) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := withSpare(t)
			w.c.passes.terminations.brake = brake.New(1)
			tc.block(w)
			w.clock.Step(provedAfter)
			for range 2 {
				w.mustPass()
				if !w.spare() || len(w.deleted) > 0 {
					t.Fatalf("the spare is wanted: %v, deleted %v; events %q", w.spare(), w.deleted, w.events)
				}
			}
			tc.open(w)
			w.mustPass()
			if diff := cmp.Diff([]string{"b"}, w.deleted); diff != "" || w.spare() {
				t.Errorf("deleted (-want +got):\n%s a spare is wanted: %v", diff, w.spare())
			}
		})
	}
}

// The claim of a spare that was launched may not be seen yet when something gets in the way.
func TestSpareThatIsNotSeenYet(t *testing.T) {
	w := static(t)
	w.mustPass()
	w.pdb("pdb")
	w.mustPass()
	if !w.spare() {
		t.Fatal("a spare that was launched a moment ago is given up")
	}
	w.machine("new", created(w.clock.Now()))
	w.mustPass()
	if !w.spare() {
		t.Error("a spare is given up")
	}
}

// After a change of the leader nothing is known of spares until the first pass; then one that is there stays, whatever keeps the drifted nodes.
func TestSpareOfAnotherLeader(t *testing.T) {
	w := withSpare(t)
	w.pdb("pdb")
	w.c.passes = newPasses(&w.cfg, w.c.pods.GetIndexer(), w.c.surges)
	if _, known := w.c.Spare("default"); known {
		t.Error("something is known before the first pass")
	}
	w.mustPass()
	if !w.spare() {
		t.Error("the last leader's spare is given up")
	}
	if _, known := w.c.Spare("another"); known {
		t.Error("something is known of a pool that is not there")
	}
}

// If the deletion of the drifted node fails, it may have worked: the spare is neither ended nor is another one launched before that is known.
func TestSpareWhenTheDeletionFails(t *testing.T) {
	for name, lost := range map[string]bool{"it has failed": false, "the answer was lost": true} {
		t.Run(name, func(t *testing.T) {
			w := withSpare(t)
			w.loseDelete, w.failDelete = lost, !lost
			w.clock.Step(provedAfter)
			if _, err := w.pass(); err == nil {
				t.Fatal("no error")
			}
			if _, known := w.c.Spare("default"); known {
				t.Error("it is known whether a spare is wanted")
			}
			w.loseDelete, w.failDelete = false, false
			w.mustPass()
			if _, known := w.c.Spare("default"); !known || w.spare() || w.alive("b") || !w.alive("a") {
				t.Errorf("known %v, wanted %v, b is there: %v, a is there: %v", known, w.spare(), w.alive("b"), w.alive("a"))
			}
		})
	}
}

// A pool that is scaled in by one while nodes are drifted has no spare, and pkg/staticpool ends the node that is too many: if a drifted one ended
// here as well, there would be one too few.
func TestStaticPoolScaledInByOne(t *testing.T) {
	w := static(t)
	w.changePool(func(p *karpv1.NodePool) { p.Spec.Replicas = ptr.To[int64](1) })
	w.mustPass()
	if wanted, known := w.c.Spare("default"); wanted || !known || len(w.deleted) > 0 {
		t.Errorf("a spare is wanted: %v, known: %v; deleted %v", wanted, known, w.deleted)
	}
}

// While a drifted node ends it isn't known whether its pool wants a spare: pkg/staticpool would end the new node, or launch another one.
func TestSpareWhileTheDriftedNodeEnds(t *testing.T) {
	w := withSpare(t)
	w.clock.Step(provedAfter)
	asked := 0
	w.interrupt = func(call string) {
		if call != "delete" {
			return
		}
		asked++
		if _, known := w.c.Spare("default"); known {
			t.Error("it is known whether a spare is wanted")
		}
	}
	w.mustPass()
	if wanted, known := w.c.Spare("default"); asked != 1 || wanted || !known {
		t.Errorf("%d nodes end; afterwards a spare is wanted: %v, known: %v", asked, wanted, known)
	}
}
