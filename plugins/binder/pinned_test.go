package binder

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// withoutApart is a ledger that must not look at all of its classes.
type withoutApart struct {
	Ledger
	*testing.T
}

func (w withoutApart) Apart(uid types.UID, _ *capacity.Class, _ bool) map[capacity.ClassKey]bool {
	w.Errorf("for pod %s the ledger looks at all of its classes, though the pod may only go to the node planned for it", uid)
	return nil
}

// In a burst nearly every cycle is that of a planned pod, and where each pod is a class of its own there are as many classes as pods.
func TestPinnedPodsTakeNoLookAtAllClasses(t *testing.T) {
	w := newWorld(t)
	w.launch("claim", pod("web"))
	w.appear("claim", "node", ledger.NodeStatus{Managed: true})
	b := &Binder{ledger: withoutApart{w.reservations, t}, class: classifier{}}
	got, status := b.PreFilter(t.Context(), framework.NewCycleState(), pod("web"), nil)
	if !status.IsSuccess() || got == nil || !got.NodeNames.Has("node") || len(got.NodeNames) != 1 {
		t.Errorf("PreFilter: %v, %v; want the planned node alone", got, status)
	}
}
