package disruption

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Many nodes at once are terminated as fast as the brake allows, whatever the reason: those whose time is over first, in their order.
func TestBrake(t *testing.T) {
	w := newWorld(t, pool())
	w.c.passes.terminations.brake = brake.New(3)
	for i := range 5 {
		name := fmt.Sprintf("old-%d", 4-i)
		w.machine(name, lives(fmt.Sprintf("%dm", 60-i)))
		w.bind("bare-"+name, "node-"+name)
	}
	w.clock.Step(50 * time.Minute)
	w.mustPass()
	w.passUntil(epoch.Add(time.Hour))
	for i := range 4 {
		w.machine(fmt.Sprintf("empty-%d", i))
	}
	w.clock.SetTime(epoch.Add(time.Hour))
	for minute, want := range []int{3, 6, 9, 9} {
		w.mustPass()
		w.clock.Step(time.Minute - time.Second)
		w.mustPass()
		if got := len(w.deleted); got != want {
			t.Errorf("minute %d: %d ended in all, want %d", minute, got, want)
		}
		w.clock.Step(time.Second)
	}
	if diff := cmp.Diff([]string{"old-0", "old-1", "old-2", "old-3", "old-4"}, w.deleted[:5]); diff != "" {
		t.Errorf("ended first (-want +got):\n%s", diff)
	}
	for _, name := range []string{"old-3", "empty-1"} {
		if !w.event(name + " Warning DisruptionBlocked: 3 nodes have been terminated within a minute") {
			t.Errorf("%s isn't told: %q", name, w.events)
		}
	}
}

// No node stays cordoned when the brake stops its termination at the last moment.
func TestBrakeAtTheLastMoment(t *testing.T) {
	w := newWorld(t, pool())
	w.c.passes.terminations.brake = brake.New(1)
	w.machine("a")
	w.clock.Step(time.Hour)
	w.interrupt = func(call string) {
		if call == "list" {
			w.c.passes.terminations.brake.Take(w.clock.Now()) // another controller
		}
	}
	w.mustPass()
	if !w.alive("a") || w.fenced["node-a"] || disrupted(w.node("node-a")) {
		t.Errorf("alive %v, fenced %v", w.alive("a"), w.fenced["node-a"])
	}
}

// A dry run reports once what would be done, within what budgets allow, and does nothing.
func TestDryRun(t *testing.T) {
	w := newWorld(t, pool(func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}} }))
	w.dryRun()
	w.machine("a")
	w.machine("b")
	w.machine("old", lives("1h"))
	w.bind("web", "node-old", controlled)
	w.clock.Step(time.Hour)
	for range 3 {
		w.mustPass()
	}
	if len(w.deleted)+len(w.fenced)+len(w.asked) > 0 || disrupted(w.node("node-a")) || disrupted(w.node("node-old")) {
		t.Errorf("deleted %v, fenced %v, asked %v", w.deleted, w.fenced, w.asked)
	}
	var said []string
	for _, e := range w.events {
		if e != "default Normal DisruptionBlocked: no disruption for reason Empty is allowed now by the pool's disruption budgets" {
			said = append(said, e)
		}
	}
	if diff := cmp.Diff([]string{
		"old Normal DisruptionDryRun: Would terminate the node: its expireAfter is over",
		"node-old Normal DisruptionDryRun: Would terminate the node: its expireAfter is over",
		"a Normal DisruptionDryRun: Would terminate the node: it is empty",
		"node-a Normal DisruptionDryRun: Would terminate the node: it is empty",
	}, said); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
	w.clock.Step(reportEvery)
	w.mustPass()
	if n := len(w.c.passes.terminations.reported); n != 2 || !slices.Contains(w.events[len(said):], said[2]) {
		t.Error("not said again")
	}
}

func TestAnnotationsThatKeepANode(t *testing.T) {
	whenEmpty := func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty }
	for _, tc := range []struct {
		name string
		pool func(*karpv1.NodePool)
		key  string
		ends bool
	}{
		{name: "do-not-disrupt", key: "karpenter.sh/do-not-disrupt"},
		{name: "do-not-consolidate where there is consolidation", key: "karpenter.sh/do-not-consolidate"},
		{name: "do-not-consolidate says nothing where only empty nodes end", key: "karpenter.sh/do-not-consolidate", pool: whenEmpty, ends: true},
		{name: "the other autoscaler's", key: "cluster-autoscaler.kubernetes.io/scale-down-disabled", pool: whenEmpty},
		{name: "another", key: "example.com/do-not-disrupt", ends: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pool()
			if tc.pool != nil {
				tc.pool(p)
			}
			w := newWorld(t, p)
			w.machine("a", func(_ *karpv1.NodeClaim, n *corev1.Node) { n.Annotations = map[string]string{tc.key: "true"} })
			w.clock.Step(time.Hour)
			w.mustPass()
			if !w.alive("a") != tc.ends {
				t.Errorf("ended = %v, want %v", !w.alive("a"), tc.ends)
			}
			if !tc.ends && !w.event("node-a Normal DisruptionBlocked: disruption is blocked by the annotation "+tc.key) {
				t.Errorf("nobody is told: %q", w.events)
			}
		})
	}
}

func TestWhatPausesAPool(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "True": true, "yes": true, "": true, "until tuesday": true, "false": false, "False": false, "0": false} {
		pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{objects.AnnotationPauseDisruption: value}}}
		if got := paused(&candidate{pool: pool}); got != want {
			t.Errorf("%q: paused is %v", value, got)
		}
	}
	if paused(&candidate{pool: &karpv1.NodePool{}}) || paused(&candidate{}) {
		t.Error("paused without being asked")
	}
}
