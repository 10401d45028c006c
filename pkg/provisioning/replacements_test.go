package provisioning

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/moves"
)

// bound returns pods on a node.
func bound(n int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		pod := unscheduled(1000 + i)
		pod.Spec.NodeName = "old"
		pods = append(pods, pod)
	}
	return pods
}

// A node that is drained, or that stays, is not remembered.
func TestForgottenReplacementsLeaveNothing(t *testing.T) {
	r := newWorld().replacements()
	_, _ = r.Replace("old", bound(2), nil)
	if len(r.movesDue()) != 1 {
		t.Error("no capacity is planned for its pods")
	}
	r.Forget("old")
	if len(r.moves) > 0 {
		t.Error("something is remembered")
	}
}

// What is reserved for one controller's pods is no capacity for another's.
func TestMissing(t *testing.T) {
	w := newWorld()
	pods := bound(4)
	pods[3].OwnerReferences[0].UID = "other"
	wanted, err := w.replacements().successors(pods)
	if err != nil || len(moves.Missing(wanted, nil)) != 4 {
		t.Fatalf("wanted %v, problem %v", wanted, err)
	}
	held := map[ledger.Successor]int{}
	for key := range wanted {
		if key.Owner == "rs" {
			held[key] = 2
		}
	}
	if got := moves.Missing(wanted, held); len(got) != 2 {
		t.Errorf("%d missing, want one of the three and the other's", len(got))
	}
}

// A bound pod has labels of its node, which its successor will not have before it is bound; and pods of other schedulers have classes of
// their own.
func TestSuccessorsAreOfTheClassThatComes(t *testing.T) {
	for _, others := range []bool{false, true} {
		w := newWorld()
		pods, next := bound(1), unscheduled(2000)
		if others {
			pods[0].Spec.SchedulerName, next.Spec.SchedulerName = "theirs", "theirs"
		}
		want, err := w.pending.Classes.Class(next)
		if err != nil {
			t.Fatal(err)
		}
		if pods[0].Labels == nil {
			pods[0].Labels = map[string]string{}
		}
		pods[0].Labels[corev1.LabelTopologyZone], pods[0].Labels[corev1.LabelTopologyRegion] = "us-west-2a", "us-west-2"
		wanted, _ := w.replacements().successors(pods)
		if wanted[ledger.Successor{Owner: "rs", Class: want.Key}] == nil {
			t.Errorf("other scheduler %v: room is made for %v, and class %s will come", others, wanted, want.Key)
		}
		if pods[0].Labels[corev1.LabelTopologyZone] == "" {
			t.Error("the informer's pod was changed")
		}
	}
}
