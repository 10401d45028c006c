package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// orphan removes a pod's owner. No controller would recreate the pod, so it is bound only once its node has registered.
func orphan(p *corev1.Pod) { p.OwnerReferences = nil }

// The leader dies while pods wait behind their gates for booting nodes. The standby, which never closed a gate itself, takes over what
// was promised: every pod runs, and nothing is launched again.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.sim.Speed, s.mortal = 4, true })
	e.apply(nodeClass, nodePool)
	options := e.options
	options.Name = "standby"
	standby, err := e.c.StartScheduler(e.ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	e.pods("web", 20, "500m", "512Mi")
	e.pods("lonely", 10, "500m", "512Mi", orphan)
	for i := range 10 {
		e.eventOf(fmt.Sprint("lonely-", i), "Nominated")
	}
	e.awaitClaims()
	launches := e.launches()
	e.sched.Kill()
	e.sched = standby
	e.running("web", 20)
	e.running("lonely", 10)
	e.settled(len(e.claims()))
	if n := e.launches(); n != launches {
		t.Errorf("%d launches by the standby for pods whose machines were booting", n-launches)
	}
}
