package launch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// An instance that gets the name of a deleted Node doesn't inherit its pods: they may exceed its capacity.
func TestPodsThatAFormerNodeHasLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		bound   time.Duration // before the claim was created, or after
		ran     bool
		there   bool // a Node of that name exists
		denied  bool // the pod may not be deleted
		killed  []string
		created time.Duration
	}{
		"bound before the claim was made":      {bound: -time.Minute, killed: []string{"left"}, created: nameReuseCheck},
		"bound since then, and it ran":         {bound: time.Second, ran: true, killed: []string{"left"}, created: nameReuseCheck},
		"bound since then: others may end it":  {bound: time.Second, killed: []string{"left"}, created: leftoverPatience + nameReuseCheck},
		"ending it is denied":                  {bound: -time.Minute, denied: true, killed: []string{"left"}, created: firstRetry},
		"on the Node that was to be made, too": {bound: -time.Minute, there: true, created: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.build()
				now := time.Now()
				c := &capacity.Claim{Name: "c", UID: "c", CreatedAt: now}
				w.parts.claims.keep(c)
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/i"}}
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "left", UID: types.UID("left")}, Spec: corev1.PodSpec{NodeName: "n"}}
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(tc.bound))}}
				if tc.ran {
					p.Status.StartTime = &metav1.Time{Time: now}
				}
				w.otherPods = map[string][]*corev1.Pod{"n": {p}}
				w.claims["c"] = c
				if tc.denied {
					w.broken["EndPod"] = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "left", nil)
				}
				if tc.there {
					w.nodes["n"] = node
				} else {
					w.broken["GetNode"] = apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "n")
				}
				if !w.parts.finisher.createNode(t.Context(), ledgerRequester{w.reservations}, c, node) || w.nodes["n"] != node {
					t.Fatal("not created")
				}
				if took := time.Since(now); took != tc.created {
					t.Errorf("created after %s, want %s", took, tc.created)
				}
				if diff := cmp.Diff(tc.killed, w.killed); diff != "" {
					t.Errorf("pods ended (-want +got):\n%s", diff)
				}
			})
		})
	}
}
