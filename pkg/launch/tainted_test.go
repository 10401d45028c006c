package launch

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// plenty is a node with capacity for all.
type plenty struct{}

func (plenty) Requested(corev1.ResourceName) int64   { return 0 }
func (plenty) Allocatable(corev1.ResourceName) int64 { return 1 << 40 }
func (plenty) Volumes(string) int64                  { return 0 }
func (plenty) Daemon(string) bool                    { return false }

// An undeclared agent taints each new node NoExecute. The taint is recorded and, once it is expected, pods wait for its removal instead of
// being bound before and evicted by it.
func TestTaintsOfOthersOnFreshNodes(t *testing.T) {
	scanner := corev1.Taint{Key: "scanner", Effect: corev1.TaintEffectNoExecute}
	w := newWorld(t)
	w.run()
	w.submit(1)
	w.allBound(1)
	change := func(taints []corev1.Taint, ready bool) {
		t.Helper()
		w.mu.Lock()
		var node *corev1.Node
		for _, n := range w.nodes {
			node = n.DeepCopy()
		}
		w.mu.Unlock()
		node.Labels[labelPool] = "pool"
		node.Spec.Taints = taints
		if ready {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		w.parts.Nodes.NodeChanged(nil, node)
	}
	change([]corev1.Taint{scanner}, false)
	w.until("the taint is passed on", func() bool {
		return slices.ContainsFunc(w.notes, func(n string) bool { return strings.HasSuffix(n, " scanner:NoExecute") })
	})
	w.expected.Store(&[]corev1.Taint{scanner})

	class, err := w.pending.Classes.Class(w.pod(7))
	if err != nil {
		t.Fatal(err)
	}
	var name string
	w.mu.Lock()
	for n := range w.nodes {
		name = n
	}
	w.mu.Unlock()
	for _, step := range []struct {
		taints  []corev1.Taint
		ready   bool
		refused bool
	}{{nil, false, true}, {[]corev1.Taint{scanner}, true, true}, {nil, true, false}} {
		change(step.taints, step.ready)
		if why := w.reservations.Object(name, &ledger.Ask{UID: "stranger", Class: class}, plenty{}); (why != nil) != step.refused {
			t.Errorf("taints %v, ready %t: refused because %q, want refused: %t", step.taints, step.ready, why, step.refused)
		}
	}
}
