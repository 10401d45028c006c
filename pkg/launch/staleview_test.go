package launch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// A plan places a pod on a node that is about to be initialized. Before the plan is carried out the node is initialized, and the ledger forgets it,
// because nothing is reserved there. No event follows for minutes, so what the plan knew of the node must not be taken for what it is: the pod
// would wait until kube-scheduler tries it again by itself.
func TestANodeIsInitializedWhileAPlanIsMade(t *testing.T) {
	w := newWorld(t)
	w.build()
	w.submit(1)
	class, err := w.pending.Classes.Class(w.pod(0))
	if err != nil {
		t.Fatal(err)
	}
	c := &capacity.Claim{Name: "c", UID: "c", Pool: "pool"}
	n := w.NodeFor(c, capacity.Instance{NodeName: "n", ProviderID: "aws:///a/i-1"}, nil)
	n.Spec.Taints = []corev1.Taint{{Key: "example.com/starting", Effect: corev1.TaintEffectNoSchedule}}
	w.parts.Nodes.NodeCached(n)
	then := w.parts.Nodes.states.status(n)
	up := n.DeepCopy()
	up.Spec.Taints = nil
	up.Labels[labelRegistered], up.Labels[labelInitialized] = "true", "true"
	up.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.parts.Nodes.NodeCached(up)
	if w.reservations.Watches("n") {
		t.Fatal("the ledger has the node still")
	}
	pod := w.pod(0)
	w.parts.committer.Commit(t.Context(), &provisioning.Proposal{
		Plan:     &capacity.Plan{Placements: []capacity.Placement{{Class: class, Pod: capacity.RefOf(pod), Node: "n"}}},
		Existing: map[string]provisioning.Existing{"n": {Status: then}}, Place: (*ledger.Ledger).Commit,
	})
	if closed, why := w.reservations.Gate(pod.UID); closed {
		t.Errorf("the pod waits: %s", why)
	}
}
