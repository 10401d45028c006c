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
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

func owned(apiVersion, kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "x"}}
	}
}

func annotated(k, v string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{k: v} }
}

func TestEmptiness(t *testing.T) {
	type change = func(*karpv1.NodeClaim, *corev1.Node)
	for _, tc := range []struct {
		name    string
		pool    func(*karpv1.NodePool)
		machine change
		setup   func(w *world)
		after   time.Duration // since initialized
		ends    bool
		event   string
	}{
		{name: "an empty node ends when consolidateAfter is over", after: time.Minute, ends: true, event: "node-a Normal DisruptionTerminating"},
		{name: "not before", after: time.Minute - time.Second},
		{name: "a node with a pod stays", after: time.Hour, setup: func(w *world) { w.bind("p", "node-a") }},
		{name: "daemons don't keep it", after: time.Minute, ends: true, setup: func(w *world) { w.bind("p", "node-a", owned("apps/v1", "DaemonSet")) }},
		{name: "static pods don't keep it", after: time.Minute, ends: true, setup: func(w *world) { w.bind("p", "node-a", owned("v1", "Node")) }},
		{name: "pods that have ended don't keep it", after: time.Minute, ends: true, setup: func(w *world) {
			w.bind("p", "node-a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		}},
		{name: "pods that cost nothing don't keep it", after: time.Minute, ends: true, setup: func(w *world) {
			w.bind("p", "node-a", func(p *corev1.Pod) { p.Spec.Priority = new(int32(-1 << 25)) })
		}},
		{name: "pods that cost little do", after: time.Hour, setup: func(w *world) {
			w.bind("p", "node-a", func(p *corev1.Pod) { p.Spec.Priority = new(int32(-1_000_000)) })
		}},
		{name: "capacity that is kept there for CapacityBuffers does, too", after: time.Hour, setup: func(w *world) { w.chunks["node-a"] = true }},
		{name: "a paused pool keeps it", after: time.Hour, pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
		}},
		{name: "a pod that is still ending keeps it", after: time.Hour, setup: func(w *world) {
			w.bind("p", "node-a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: epoch.Add(time.Hour + 30*time.Second)} })
		}},
		{name: "one that will never end doesn't", after: time.Hour, ends: true, setup: func(w *world) {
			w.bind("p", "node-a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: epoch} })
		}},
		{name: "time counts from the last pod event on record", after: 10 * time.Minute, machine: func(c *karpv1.NodeClaim, _ *corev1.Node) {
			c.Status.LastPodEventTime = metav1.NewTime(epoch.Add(9*time.Minute + 30*time.Second))
		}},
		{name: "and from one that isn't on record yet", after: 10 * time.Minute, setup: func(w *world) {
			w.activity["node-a"] = epoch.Add(9*time.Minute + 30*time.Second)
		}},
		{name: "a node that something is planned for stays", after: time.Hour, setup: func(w *world) { w.promised["node-a"] = true }},
		{name: "consolidateAfter Never", after: time.Hour, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		}},
		{name: "consolidateAfter 0s", after: 0, ends: true, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		}},
		{name: "policy WhenEmpty", after: time.Minute, ends: true, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
		}},
		{name: "a static pool keeps its nodes", after: time.Hour, pool: func(p *karpv1.NodePool) { p.Spec.Replicas = new(int64) }},
		{name: "a node that isn't initialized stays", after: time.Hour, machine: func(c *karpv1.NodeClaim, n *corev1.Node) {
			delete(n.Labels, karpv1.NodeInitializedLabelKey)
		}},
		{name: "a node of a pool that is gone stays: others end it", after: time.Hour, machine: func(c *karpv1.NodeClaim, _ *corev1.Node) {
			c.Labels[karpv1.NodePoolLabelKey] = "gone"
		}},
		{name: "a node that asks not to be disrupted stays", after: time.Hour, event: "node-a Normal DisruptionBlocked", machine: func(_ *karpv1.NodeClaim, n *corev1.Node) {
			n.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		}},
		{name: "so does one whose daemon asks", after: time.Hour, event: "node-a Normal DisruptionBlocked", setup: func(w *world) {
			w.bind("p", "node-a", owned("apps/v1", "DaemonSet"), annotated(karpv1.DoNotDisruptAnnotationKey, "true"))
		}},
		{name: "a budget of none", after: time.Hour, event: "default Normal DisruptionBlocked", pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		}},
		{name: "a budget of none for other reasons", after: time.Hour, ends: true, pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}}}
		}},
		{name: "a budget that can't be read allows nothing", after: time.Hour, event: "default Normal DisruptionBlocked", pool: func(p *karpv1.NodePool) {
			bad := "sometimes"
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%", Schedule: &bad, Duration: &metav1.Duration{Duration: time.Hour}}}
		}},
		{name: "a budget whose window is closed does not count", after: time.Minute, ends: true, pool: func(p *karpv1.NodePool) {
			night := "0 2 * * *"
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Schedule: &night, Duration: &metav1.Duration{Duration: time.Hour}}}
		}},
		{name: "nor does one that is never open", after: time.Minute, ends: true, pool: func(p *karpv1.NodePool) {
			february := "0 0 31 2 *"
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Schedule: &february, Duration: &metav1.Duration{Duration: time.Hour}}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pool()
			if tc.pool != nil {
				tc.pool(p)
			}
			w := newWorld(t, p)
			if tc.machine == nil {
				tc.machine = func(*karpv1.NodeClaim, *corev1.Node) {}
			}
			w.machine("a", tc.machine)
			if tc.setup != nil {
				tc.setup(w)
			}
			w.clock.Step(tc.after)
			w.mustPass()
			if ended := !w.alive("a"); ended != tc.ends {
				t.Errorf("ended = %v, want %v; events %q", ended, tc.ends, w.events)
			}
			if w.fenced["node-a"] != tc.ends || disrupted(w.node("node-a")) != tc.ends {
				t.Errorf("fenced = %v, tainted = %v", w.fenced["node-a"], disrupted(w.node("node-a")))
			}
			if tc.event != "" && !slices.ContainsFunc(w.events, func(e string) bool { return strings.HasPrefix(e, tc.event) }) {
				t.Errorf("no event %q in %q", tc.event, w.events)
			}
		})
	}
}

// A pass returns exactly when the next node is due.
func TestNextPass(t *testing.T) {
	w := newWorld(t, pool())
	w.machine("a")
	w.clock.Step(56 * time.Second)
	if got := w.mustPass(); got != 4*time.Second {
		t.Errorf("next pass after %s, want 4s", got)
	}
	w.clock.Step(4 * time.Second)
	w.mustPass()
	if w.alive("a") {
		t.Error("not ended")
	}
}

func TestBudgetsCountWhatIsGoing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		nodes  string
		others func(w *world) // besides 10 empty nodes
		want   int
	}{
		{name: "a percentage of all initialized nodes, rounded up", nodes: "25%", want: 3},
		{name: "a number", nodes: "4", want: 4},
		{name: "nodes that aren't Ready use the budget", nodes: "4", want: 3, others: func(w *world) {
			w.machine("sick", func(_ *karpv1.NodeClaim, n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
			w.bind("p", "node-sick")
		}},
		{name: "so do nodes that are draining", nodes: "4", want: 3, others: func(w *world) {
			w.machine("draining", func(_ *karpv1.NodeClaim, n *corev1.Node) {
				n.Finalizers, n.DeletionTimestamp = []string{"x"}, &metav1.Time{Time: epoch}
			})
		}},
		{name: "nodes that aren't initialized are no part of the pool", nodes: "10%", want: 1, others: func(w *world) {
			for i := range 20 {
				w.machine(fmt.Sprintf("new-%d", i), func(c *karpv1.NodeClaim, _ *corev1.Node) { c.Status.Conditions = nil })
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, pool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets[0].Nodes = tc.nodes }))
			for i := range 10 {
				w.machine(fmt.Sprintf("empty-%d", i))
			}
			if tc.others != nil {
				tc.others(w)
			}
			w.clock.Step(time.Hour)
			w.freeze()
			w.mustPass()
			if got := len(w.deleted); got != tc.want {
				t.Errorf("%d ended, want %d", got, tc.want)
			}
			// A second pass terminates no more nodes: the first ones are still terminating, whether the cache shows that or not.
			w.mustPass()
			w.stale = nil
			w.mustPass()
			if got := len(w.deleted); got != tc.want {
				t.Errorf("%d ended after another pass, want %d", got, tc.want)
			}
		})
	}
}

func TestLongestQuietFirst(t *testing.T) {
	w := newWorld(t, pool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets[0].Nodes = "2" }))
	for name, quiet := range map[string]time.Duration{"a": 20 * time.Minute, "b": 40 * time.Minute, "c": 30 * time.Minute} {
		w.machine(name, func(c *karpv1.NodeClaim, _ *corev1.Node) {
			c.Status.LastPodEventTime = metav1.NewTime(epoch.Add(time.Hour - quiet))
		})
	}
	w.clock.Step(time.Hour)
	w.mustPass()
	if diff := cmp.Diff([]string{"b", "c"}, w.deleted); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
}

// The answer to a deletion is lost: whether or not it worked, the node is neither uncordoned while it terminates nor left cordoned.
func TestDeletionWithoutAnswer(t *testing.T) {
	for _, worked := range []bool{true, false} {
		t.Run(fmt.Sprintf("worked=%v", worked), func(t *testing.T) {
			w := newWorld(t, pool())
			w.machine("a")
			w.clock.Step(time.Hour)
			w.freeze()
			w.loseDelete, w.failDelete = worked, !worked
			if _, err := w.pass(); err == nil {
				t.Fatal("the failure was not reported")
			}
			if !w.fenced["node-a"] || !disrupted(w.node("node-a")) {
				t.Fatal("opened although the deletion may have worked")
			}
			w.loseDelete, w.failDelete = false, false
			w.bind("keeps-it-from-going-again", "node-a")
			w.mustPass()
			if w.fenced["node-a"] != worked || disrupted(w.node("node-a")) != worked {
				t.Errorf("fenced = %v, tainted = %v", w.fenced["node-a"], disrupted(w.node("node-a")))
			}
		})
	}
}

// A node that can't be terminated doesn't keep others from being terminated.
func TestFailuresAreAlone(t *testing.T) {
	w := newWorld(t, pool())
	w.machine("a", func(c *karpv1.NodeClaim, _ *corev1.Node) { c.Status.LastPodEventTime = metav1.NewTime(epoch) })
	w.machine("b")
	w.clock.Step(time.Hour)
	first := true
	w.interrupt = func(call string) {
		if call == "delete" {
			w.failDelete, first = first, false
		}
	}
	if _, err := w.pass(); err == nil {
		t.Error("the failure was not reported")
	}
	if !w.alive("a") || w.alive("b") {
		t.Errorf("alive: a %v, b %v", w.alive("a"), w.alive("b"))
	}
}

func TestHold(t *testing.T) {
	w := newWorld(t, pool())
	w.machine("a")
	w.clock.Step(time.Hour)
	w.c.passes.hold = func() error { return errors.New("another controller is alive") }
	w.mustPass()
	if !w.alive("a") || len(w.fenced) > 0 {
		t.Error("something was done")
	}
}

// An empty node may be needed for CapacityBuffers as long as these are not known, but that isn't waited for much longer than they take to be read.
func TestBuffersAreAwaited(t *testing.T) {
	w := newWorld(t, pool())
	w.machine("a")
	w.chunks["unknown"] = true
	w.clock.Step(time.Hour)
	w.sync()
	for _, watched := range []time.Duration{buffersUnknown - time.Second, buffersUnknown} {
		if _, _, err := w.c.passes.run(t.Context(), w.clock.Now().Add(-watched)); err != nil {
			t.Fatal(err)
		}
		if ended := len(w.deleted) > 0; ended != (watched == buffersUnknown) {
			t.Errorf("%v after the start: ended %v", watched, ended)
		}
	}
}

// A node without pods of its own stays as long as a PodDisruptionBudget doesn't let one of its pods go: its drain would not end. Karpenter checks
// every pod, too. Where a drifted node has a terminationGracePeriod, that ends the drain.
func TestBudgetsOfPodsKeepEmptyNodes(t *testing.T) {
	daemon, worthless := owned("apps/v1", "DaemonSet"), func(p *corev1.Pod) { p.Spec.Priority = new(int32(-1 << 25)) }
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	deadline := func(c *karpv1.NodeClaim, _ *corev1.Node) {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	}
	for _, tc := range []struct {
		name    string
		pod     []func(*corev1.Pod)
		machine func(*karpv1.NodeClaim, *corev1.Node)
		drifted bool
		late    bool // the pod comes when the node has been cordoned
		allowed bool
		ends    bool
	}{
		{name: "a DaemonSet's pod", pod: []func(*corev1.Pod){daemon, web}},
		{name: "a pod that costs nothing", pod: []func(*corev1.Pod){controlled, worthless, web}},
		{name: "at the last moment", pod: []func(*corev1.Pod){controlled, worthless, web}, late: true},
		{name: "drifted", pod: []func(*corev1.Pod){daemon, web}, drifted: true},
		{name: "whatever its terminationGracePeriod", pod: []func(*corev1.Pod){daemon, web}, machine: deadline},
		{name: "unless it has drifted", pod: []func(*corev1.Pod){daemon, web}, machine: deadline, drifted: true, ends: true},
		{name: "a budget that allows it", pod: []func(*corev1.Pod){daemon, web}, allowed: true, ends: true},
		{name: "a pod that no budget selects", pod: []func(*corev1.Pod){daemon}, ends: true},
		{name: "a pod that a drain leaves", pod: []func(*corev1.Pod){daemon, web, tolerant}, ends: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, _ := consolidating(t, func(p *karpv1.NodePool) {
				if tc.drifted {
					p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
				}
			})
			w.pdb("pdb", func(b *policyv1.PodDisruptionBudget) {
				if tc.allowed {
					b.Status.DisruptionsAllowed = 1
				}
			})
			w.machine("a", created(epoch.Add(-time.Hour)), func(c *karpv1.NodeClaim, n *corev1.Node) {
				if tc.machine != nil {
					tc.machine(c, n)
				}
			})
			if tc.drifted {
				w.drifted("a", "AMIDrift")
			}
			bind := func() { w.bind("p", "node-a", tc.pod...) }
			if tc.late {
				w.interrupt = func(call string) {
					if call == "taint" {
						bind()
					}
				}
			} else {
				bind()
			}
			w.clock.Step(time.Minute)
			w.mustPass()
			if ended := !w.alive("a"); ended != tc.ends || disrupted(w.node("node-a")) != tc.ends || w.fenced["node-a"] != tc.ends {
				t.Errorf("ended = %v, want %v; tainted = %v, fenced = %v", ended, tc.ends, disrupted(w.node("node-a")), w.fenced["node-a"])
			}
			if note := "node-a Normal DisruptionBlocked: disruption is blocked: the PodDisruptionBudget pdb allows no eviction of pod default/p"; !tc.ends && !tc.late && !w.event(note) {
				t.Errorf("no event %q in %q", note, w.events)
			}
		})
	}
}
