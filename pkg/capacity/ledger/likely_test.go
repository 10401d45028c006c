package ledger

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Pods of one class may have different ResourceClaims, so plans have to know which pod will be on which node.
func TestLikelyPodsOfSlots(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := New()
	class := testClass("a", 100, 0)
	class.Pod = &corev1.Pod{}
	class.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	var plan []capacity.Placement
	for _, name := range []string{"1", "2"} {
		ref := capacity.PodRef{UID: types.UID("pod-" + name)}
		l.Submit(ref, class, now)
		l.AddNode("claim-"+name, &capacity.Node{}, nil, false, now)
		plan = append(plan, capacity.Placement{Class: class, Pod: ref, Node: "claim-" + name})
	}
	l.Commit("plan", plan, now)
	for _, f := range l.InFlight() {
		if want := types.UID("pod-" + f.Claim[len("claim-"):]); len(f.Slots) != 1 || f.Slots[0].Likely != want {
			t.Errorf("%s: %+v, want %s", f.Claim, f.Slots, want)
		}
	}
}
