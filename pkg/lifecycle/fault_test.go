package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// What giving up a claim means to the spending guard.
func TestFaults(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		change(n)
		return n
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	claim.Spec.StartupTaints = []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoSchedule}}
	for _, tt := range []struct {
		name, reason string
		life         life
		want         *guard.Fault
	}{
		{"no kubelet came", reasonRegistrationTimeout, life{}, &guard.Fault{Machine: true, Cause: "never registered", Message: "m"}},
		{"the instance died", reasonInstanceEnded, life{}, &guard.Fault{Machine: true, Cause: "instance ended", Message: "m"}},
		{"EC2 took it", reasonInstanceEnded, life{taken: true}, nil},
		{"the Node is gone", reasonNodeMissing, life{}, guard.Deleted("m")},
		{"nothing was launched", reasonLaunchTimeout, life{}, nil},
		{"it is not Ready", reasonInitTimeout, life{match: match{node: node(func(n *corev1.Node) { n.Status.Conditions = nil })}},
			&guard.Fault{Machine: true, Cause: "not initialized", Message: "m"}},
		{"a startup taint stays", reasonInitTimeout, life{match: match{node: node(func(n *corev1.Node) { n.Spec.Taints = claim.Spec.StartupTaints })}},
			&guard.Fault{Cause: "not initialized: startup taint cni:NoSchedule is still there", Message: "m"}},
	} {
		tt.life.claim = claim
		s := &surrender{requirements: requirements{expectedTaints: func(string) []corev1.Taint { return nil }}}
		if diff := cmp.Diff(tt.want, s.faultOf(&tt.life, tt.reason, "m")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A claim that the spending guard has paused isn't given up, and its time begins when it may be launched.
func TestHeldClaimIsNotTimedOut(t *testing.T) {
	w := newWorld(t)
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine", UID: "uid-mine", CreationTimestamp: metav1.NewTime(w.clock.Now()), Finalizers: []string{karpv1.TerminationFinalizer}}}
	(&life{claim: claim, clock: w.clock}).conditions().SetFalse(karpv1.ConditionTypeLaunched, reasonPaused, "machines fail")
	w.createClaim(claim)
	w.pass(time.Hour, time.Minute)
	claim = w.claim("mine")
	if claim == nil || claim.DeletionTimestamp != nil {
		t.Fatal("given up while it was held")
	}
	(&life{claim: claim, clock: w.clock}).conditions().SetUnknownWithReason(karpv1.ConditionTypeLaunched, "InsufficientCapacity", "for now")
	if err := w.claims.Status().Update(w.ctx, claim); err != nil {
		t.Fatal(err)
	}
	w.pass(launchTimeout-time.Minute, time.Minute)
	if c := w.claim("mine"); c == nil || c.DeletionTimestamp != nil {
		t.Fatal("its time didn't begin when it was let go")
	}
	w.pass(2*time.Minute, time.Minute)
	if c := w.claim("mine"); c != nil && c.DeletionTimestamp == nil {
		t.Error("not given up when its time was over")
	}
}

// The guard gets the reason before the claim is deleted.
func TestGuardHearsBeforeAClaimIsDeleted(t *testing.T) {
	w := newWorld(t)
	var told []guard.Fault
	w.givingUp = func(claim, _ string, f *guard.Fault) {
		if c := w.claim(claim); c == nil || c.DeletionTimestamp != nil {
			t.Error("told after it went")
		}
		told = append(told, *f)
	}
	w.launched("a")
	w.pass(registrationTimeout+time.Minute, time.Minute)
	if len(told) == 0 || !told[0].Machine || told[0].Cause != "never registered" {
		t.Errorf("told %+v", told)
	}
}
