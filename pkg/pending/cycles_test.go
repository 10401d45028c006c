package pending

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A pod that has had its cycle is waited for no longer, whatever came of it: a lone pod's node is launched although the volume of the next pod is
// still being provisioned, and although preemption may help the next.
func TestPodsWhoseCycleHasFailed(t *testing.T) {
	for _, tc := range []struct {
		name string
		fail func(c *coming, pod *corev1.Pod)
	}{
		{"no node is launched for it", func(c *coming, pod *corev1.Pod) {
			c.pods.observe(nil, pod)
			c.reservations.Withdraw(pod.UID)
			c.pods.Tried(pod.UID)
		}},
		{"preemption may help it", func(c *coming, pod *corev1.Pod) {
			c.pods.observe(nil, pod)
			c.reservations.SubmitLater(capacity.RefOf(pod), &capacity.Class{})
			c.pods.Tried(pod.UID)
		}},
		{"it is seen after its cycle", func(c *coming, pod *corev1.Pod) {
			c.pods.Tried(pod.UID)
			c.pods.observe(nil, pod)
		}},
		{"it was not bound", func(c *coming, pod *corev1.Pod) {
			c.pods.observe(nil, pod)
			if err := c.reservations.Assume(pod.UID, "n", false); err != nil {
				c.Fatal(err)
			}
			c.reservations.Unassume(pod.UID, "n")
			c.pods.Tried(pod.UID)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newComing(t)
			alone := ownedPod(0, "apps/v1 ReplicaSet")
			c.pods.observe(nil, alone)
			c.tried(alone)
			c.after(50 * time.Millisecond)
			tc.fail(c, ownedPod(1, "apps/v1 ReplicaSet"))
			c.want(false)
			c.wantMore(false)
			next := ownedPod(2, "apps/v1 ReplicaSet")
			c.pods.observe(nil, next)
			c.want(true)
			c.wantMore(true)
		})
	}
}

// Pods whose cycles fail again and again are remembered for a while, and not for ever.
func TestFailedCyclesAreForgotten(t *testing.T) {
	c := newComing(t)
	for i := 0; i < 1000 && !t.Failed(); i++ {
		pod := ownedPod(i, "apps/v1 ReplicaSet")
		c.pods.observe(nil, pod)
		c.pods.Tried(pod.UID)
		c.after(admittedWindow / 100)
		c.wantMore(false)
	}
	if n := len(c.pods.newcomers.cycles.failed) + len(c.pods.newcomers.cycles.failedBefore); n > 250 {
		t.Errorf("remembers %d pods", n)
	}
}
