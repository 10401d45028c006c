package disruption

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// repairs has the world's nodes repaired.
func (w *world) repairs() {
	w.cfg.NodeClass = &cloudprovider.NodeClassKind{RepairPolicies: []cloudprovider.RepairPolicy{
		{Condition: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: 30 * time.Minute},
		{Condition: "KernelReady", Status: corev1.ConditionFalse, Toleration: 10 * time.Minute},
		{Condition: cloudprovider.InstanceStatus, Status: corev1.ConditionFalse, Toleration: 2 * time.Minute},
	}}
	w.c.passes = newPasses(&w.cfg, w.c.pods.GetIndexer(), w.c.surges)
}

// becomes sets a condition of a machine's node, as of now.
func (w *world) becomes(name string, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	w.t.Helper()
	err := w.changeNode("node-"+name, func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == kind {
				n.Status.Conditions[i].Status, n.Status.Conditions[i].LastTransitionTime = status, metav1.NewTime(w.clock.Now())
				return
			}
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(w.clock.Now())})
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// checks stand for the cloud's.
type checks map[string]cloudprovider.Impairment

func (c checks) Impaired() map[string]cloudprovider.Impairment { return c }

// many are machines in a zone.
func (w *world) many(zone string, n int) {
	for i := range n {
		w.machine(fmt.Sprintf("%s%d", zone, i), func(c *karpv1.NodeClaim, _ *corev1.Node) { c.Labels[corev1.LabelTopologyZone] = zone })
	}
}

func TestUnhealthy(t *testing.T) {
	const deadline = karpv1.NodeClaimTerminationTimestampAnnotationKey
	minutes := func(m int) string { return epoch.Add(time.Duration(m) * time.Minute).Format(time.RFC3339) }
	kernel := func(w *world) { w.becomes("a0", "KernelReady", corev1.ConditionFalse) }
	silent := func(w *world) { w.becomes("a0", corev1.NodeReady, corev1.ConditionUnknown) }
	web := func(w *world) { w.bind("web", "node-a0", controlled) }
	for _, tc := range []struct {
		name     string
		pool     func(*karpv1.NodePool)
		setup    []func(*world)
		room     string
		after    []int // minutes, of passes
		ends     bool
		closed   bool
		asked    string
		deadline string
		event    string
	}{
		{name: "tolerated", setup: []func(*world){kernel, web}, room: "ready", after: []int{9}},
		{name: "its pods get room first", setup: []func(*world){kernel, web}, after: []int{10, 19}, closed: true, asked: "web",
			event: "a0 Normal ReplacementPlanned: The drain of the node begins at 2026-03-01T12:20:00Z at the latest, because it is unhealthy: its condition KernelReady is False since 2026-03-01T12:00:00Z"},
		{name: "then it is drained, which takes five minutes at most", setup: []func(*world){kernel, web}, room: "ready", after: []int{10}, ends: true, closed: true, asked: "web", deadline: minutes(15)},
		{name: "without room after ten minutes", setup: []func(*world){kernel, web}, room: "limit reached", after: []int{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, ends: true, closed: true, asked: "web", deadline: minutes(25)},
		{name: "nor at once after a pause", setup: []func(*world){kernel, web}, room: "limit reached", after: []int{10, 11, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69}, closed: true, asked: "web"},
		{name: "without pods at once", setup: []func(*world){kernel}, after: []int{10}, ends: true, closed: true, deadline: minutes(15)},
		{name: "a claim's own grace period is shorter", after: []int{10}, ends: true, closed: true, deadline: minutes(12), setup: []func(*world){kernel, func(w *world) {
			c := w.claim("a0")
			c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 2 * time.Minute}
			if err := w.claims.Update(w.t.Context(), c); err != nil {
				w.t.Fatal(err)
			}
		}}},
		{name: "a kubelet that doesn't answer ends no pod", setup: []func(*world){silent, web}, room: "ready", after: []int{29, 30}, ends: true, closed: true, asked: "web", deadline: minutes(30)},
		{name: "it recovers while its replacement is prepared", setup: []func(*world){kernel, web}, after: []int{10, -11, 12}},
		{name: "it recovers, and expires in a month", setup: []func(*world){kernel, web, func(w *world) {
			c := w.claim("a0")
			lives("720h")(c, nil)
			if err := w.claims.Update(w.t.Context(), c); err != nil {
				w.t.Fatal(err)
			}
		}}, after: []int{10, -11, 12}},
		{name: "an impaired instance", after: []int{1, 2}, ends: true, closed: true, deadline: minutes(7), setup: []func(*world){func(w *world) {
			w.cfg.Health = checks{"i-a0": {Check: "EC2's status check of its system", Since: epoch}}
			w.repairs()
		}}, event: "a0 Normal DisruptionTerminating: Terminating the node: it is unhealthy: EC2's status check of its system fails since 2026-03-01T12:00:00Z"},
		{name: "turned off", setup: []func(*world){kernel}, after: []int{60}, pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationRepair: "off"}
		}},
		{name: "another toleration", setup: []func(*world){kernel}, after: []int{3}, ends: true, closed: true, deadline: minutes(8), pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationRepair: "KernelReady=3m"}
		}},
		{name: "one that can't be read", setup: []func(*world){kernel}, after: []int{3}, pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationRepair: "KernelReady=soon"}
		}, event: "default Warning AnnotationIgnored: The annotation dovetail.sh/repair: \"KernelReady=soon\" of NodePool default is ignored"},
		{name: "a paused pool", setup: []func(*world){kernel}, after: []int{60}, pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
		}},
		{name: "a dry run", after: []int{10}, setup: []func(*world){kernel, (*world).dryRun}, event: "a0 Normal DisruptionDryRun: Would terminate the node: it is unhealthy"},
		{name: "a budget of none doesn't hold it", setup: []func(*world){kernel}, after: []int{10}, ends: true, closed: true, deadline: minutes(15), pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		}},
		{name: "too many of its zone", after: []int{10, 60}, setup: []func(*world){kernel, func(w *world) {
			w.many("b", 15)
			w.becomes("a1", corev1.NodeReady, corev1.ConditionUnknown)
		}}, event: "default Warning NodeRepairBlocked: Node node-a0 is unhealthy and is not repaired: 2 of 4 nodes of NodePool default in zone a are unhealthy"},
		{name: "blocked for an hour, it is replaced first all the same", setup: []func(*world){kernel, web, func(w *world) {
			w.becomes("a1", "KernelReady", corev1.ConditionFalse)
		}}, after: []int{60, -61, 62, 70}, closed: true, asked: "web"},
		{name: "a loop", after: []int{10, 60}, setup: []func(*world){kernel, func(w *world) {
			w.cfg.HoldsRepair = func(pool string, launched time.Time) error {
				return errors.New("nodes of pool " + pool + " became unhealthy, too")
			}
			w.repairs()
		}}, event: "a0 Warning NodeRepairBlocked: The node is unhealthy (its condition KernelReady is False since 2026-03-01T12:00:00Z) and is not repaired: nodes of pool default became unhealthy, too"},
		{name: "a static pool launches another one itself", setup: []func(*world){kernel, web}, after: []int{10}, ends: true, deadline: minutes(15), pool: func(p *karpv1.NodePool) {
			p.Spec.Replicas = new(int64(4))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			np := pool(staying)
			if tc.pool != nil {
				tc.pool(np)
			}
			w := newWorld(t, np)
			w.room = tc.room
			w.repairs()
			w.many("a", 4)
			for _, f := range tc.setup {
				f(w)
			}
			for _, m := range tc.after {
				if m < 0 { // other nodes or this one recover
					if tc.closed {
						w.becomes("a1", "KernelReady", corev1.ConditionTrue)
					} else {
						w.becomes("a0", "KernelReady", corev1.ConditionTrue)
					}
					m = -m
				}
				w.clock.SetTime(epoch.Add(time.Duration(m) * time.Minute))
				w.mustPass()
			}
			if got := !w.alive("a0"); got != tc.ends {
				t.Errorf("ended: %v, want %v; events:\n%s", got, tc.ends, strings.Join(w.events, "\n"))
			}
			if got := w.fenced["node-a0"] && len(w.node("node-a0").Spec.Taints) > 0; got != tc.closed {
				t.Errorf("closed: %v, want %v", got, tc.closed)
			}
			if got := strings.Join(w.asked["node-a0"], " "); tc.asked != "" && got != tc.asked {
				t.Errorf("capacity was asked for %q, want %q", got, tc.asked)
			}
			if diff := cmp.Diff(tc.deadline, w.claim("a0").Annotations[deadline]); diff != "" {
				t.Errorf("deadline, -want +got:\n%s", diff)
			}
			if tc.event != "" && !w.event(tc.event) {
				t.Errorf("no event %q in:\n%s", tc.event, strings.Join(w.events, "\n"))
			}
			for _, name := range []string{"a1", "a2", "a3"} {
				if !w.alive(name) {
					t.Errorf("%s was ended", name)
				}
			}
		})
	}
}

// The deadline of a drain is recorded before the deletion. If that fails for long, the deadline is recorded anew: package lifecycle would take
// an old one for that of another deletion.
func TestDeadlineOfADeletionThatFails(t *testing.T) {
	w := newWorld(t, pool(staying))
	w.room = "ready"
	w.repairs()
	w.many("a", 4)
	w.becomes("a0", corev1.NodeReady, corev1.ConditionUnknown)
	w.failDelete = true
	recorded := func(after time.Duration) string {
		w.clock.SetTime(epoch.Add(after))
		_, _ = w.pass() // fails, as the deletion does
		return w.claim("a0").Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]
	}
	at := func(after time.Duration) string { return epoch.Add(after).Format(time.RFC3339) }
	for _, tt := range []struct{ pass, want time.Duration }{
		{30 * time.Minute, 30 * time.Minute},
		{30*time.Minute + 50*time.Second, 30 * time.Minute},
		{36 * time.Minute, 36 * time.Minute},
	} {
		if got := recorded(tt.pass); got != at(tt.want) {
			t.Errorf("after %s the deadline is %s, want %s", tt.pass, got, at(tt.want))
		}
	}
}

// Nodes that end anyway don't count as unhealthy, and why a node is kept is said as long as it isn't repaired.
func TestUnhealthyNodesThatEnd(t *testing.T) {
	w := newWorld(t, pool(staying))
	w.repairs()
	w.many("a", 6)
	for _, name := range []string{"a1", "a2"} {
		if err := w.claims.Delete(t.Context(), w.claim(name)); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.Step(24 * time.Hour) // deletions are stamped with the wall clock
	for _, name := range []string{"a1", "a2"} {
		c := w.claim(name)
		w.becomes(name, corev1.NodeReady, corev1.ConditionUnknown)
		err := w.changeNode("node-"+name, func(n *corev1.Node) {
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(c.DeletionTimestamp.Add(time.Second))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.becomes("a0", "KernelReady", corev1.ConditionFalse)
	kept := func() *consolidation.Kept {
		w.mustPass()
		return w.c.passes.unhealthy.kept(&candidate{claim: w.claim("a0")})
	}
	if k := kept(); k == nil || !strings.Contains(k.Text(), "which is tolerated until 2026-03-02T12:10:00Z") {
		t.Errorf("kept because of %v", k)
	}
	w.becomes("a3", "KernelReady", corev1.ConditionFalse)
	w.becomes("a4", "KernelReady", corev1.ConditionFalse)
	w.clock.Step(10 * time.Minute)
	if k := kept(); k == nil || !strings.Contains(k.Text(), "it is not repaired: 3 of 6 nodes of NodePool default are unhealthy") {
		t.Errorf("kept because of %v", k)
	}
	w.becomes("a4", "KernelReady", corev1.ConditionTrue)
	if k := kept(); k != nil {
		t.Errorf("kept because of %v", k)
	}
}
