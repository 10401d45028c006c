package explain

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

// nodeOf returns a Ready node of a pool with its initialized NodeClaim, and the pool unless it is gone.
func nodeOf(pool string, gone bool) *manifest.Set {
	labels := map[string]string{karpv1.NodePoolLabelKey: pool}
	set := (&manifest.Set{}).With(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: labels}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
		&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Labels: labels}, Status: karpv1.NodeClaimStatus{
			NodeName: "node", Conditions: conditions(karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized)}})
	if !gone {
		set = set.With(&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool}})
	}
	return set
}

// On a cluster that runs Karpenter, the newest of its events that say what happens to the node is the answer, with its time.
func TestNodeOfWhichKarpenterSays(t *testing.T) {
	event := func(reason, message string, ago time.Duration) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: reason}, InvolvedObject: corev1.ObjectReference{Kind: "NodeClaim", Name: "claim"}, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(now.Add(-ago))}
	}
	blocked := event("DisruptionBlocked", "Pod has a PDB", 50*time.Minute)
	for name, tc := range map[string]struct {
		events        []*corev1.Event
		kind, summary string
	}{
		"blocked":                   {[]*corev1.Event{blocked}, string(consolidation.OtherReason), "is kept, as event DisruptionBlocked said 50m ago: Pod has a PDB"},
		"terminating":               {[]*corev1.Event{blocked, event("DisruptionTerminating", "Disrupting NodeClaim: Underutilized", 5*time.Second)}, NodeDisrupted, "is going to be ended, as event DisruptionTerminating said 5s ago: Disrupting NodeClaim: Underutilized"},
		"taken back":                {[]*corev1.Event{event("SpotInterrupted", "Spot interruption warning was triggered", time.Second)}, NodeInterrupted, "is taken back by the cloud, as event SpotInterrupted said 1s ago: Spot interruption warning was triggered"},
		"an event that says less":   {[]*corev1.Event{event("Ready", "Status condition transitioned", time.Second), blocked}, string(consolidation.OtherReason), "is kept, as event DisruptionBlocked said 50m ago: Pod has a PDB"},
		"no event about its future": {nil, NodeUnsaid, "is kept, and nothing on its objects says why"},
	} {
		set := nodeOf("default", false)
		for _, e := range tc.events {
			set = set.With(e)
		}
		if a, err := clusterOf(set).Node("node"); err != nil || a.Kind != tc.kind || a.Summary != tc.summary {
			t.Errorf("%s: %+v, %v; want %s: %s", name, a, err, tc.kind, tc.summary)
		}
	}
}

// A node outlives its NodePool.
func TestNodeOfAPoolThatIsGone(t *testing.T) {
	c := clusterOf(nodeOf("old", true))
	if a, err := c.Node("node"); err != nil || a.Kind != string(consolidation.OtherReason) || !strings.Contains(a.Summary, "its NodePool old is gone") {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := c.NodePool("old"); err == nil || err.Error() != "there is no NodePool old any more; 1 node of it is still there" {
		t.Errorf("the pool: %v", err)
	}
	derived := karpenter.PoolOfProvisioner("default")
	c = clusterOf(nodeOf(derived, true).With(&legacy.Provisioner{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	if a, err := c.Node("node"); err != nil || strings.Contains(a.Summary, "gone") {
		t.Errorf("a pool of a Provisioner: %+v, %v", a, err)
	}
	if _, err := c.NodePool(derived); err == nil || strings.Contains(err.Error(), "any more") {
		t.Errorf("a pool of a Provisioner: %v", err)
	}
	if _, err := c.NodePool("never"); err == nil || err.Error() != "there is no NodePool never" {
		t.Errorf("a pool that never was: %v", err)
	}
}

// A pool whose class isn't ready, or isn't there, launches nothing, whatever its own condition Ready still says.
func TestNodePoolOfAClassThatIsNotReady(t *testing.T) {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Status: karpv1.NodePoolStatus{Conditions: conditions("Ready")}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	class := classNamed("default")
	for name, tc := range map[string]struct {
		set  *manifest.Set
		want string
	}{
		"ready":     {(&manifest.Set{}).With(pool, class("True", "")), "launches nodes for pods"},
		"not ready": {(&manifest.Set{}).With(pool, class("False", "no subnet matches")), "is not used: EC2NodeClass default isn't ready: no subnet matches"},
		"missing":   {(&manifest.Set{}).With(pool), "is not used: there is no EC2NodeClass default"},
	} {
		a, err := clusterOf(tc.set).NodePool("default")
		if err != nil || a.Summary != tc.want || (a.Kind == PoolReady) != (name == "ready") {
			t.Errorf("%s: %+v, %v; want %q", name, a, err, tc.want)
		}
	}
}
