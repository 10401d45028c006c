package integration

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// The cheapest offers have no capacity; the pods are not affected.
func TestInsufficientCapacityFallsOverAtOnce(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	e.pods("probe", 1, "1500m", "2Gi")
	first := e.bound("probe", 1)[0]
	cheapest := e.nodes()[first.Spec.NodeName].Labels[corev1.LabelInstanceTypeStable]
	for _, z := range zones {
		e.sim.SetCapacity(cheapest, z, "on-demand", 0)
	}
	begin := time.Now()
	e.pods("web", 1, "1500m", "2Gi", anti, func(p *corev1.Pod) {
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels = map[string]string{"app": "probe"}
	})
	pod := e.bound("web", 1)[0]
	t.Logf("bound on another offer after %v", time.Since(begin))
	if got := e.nodes()[pod.Spec.NodeName].Labels[corev1.LabelInstanceTypeStable]; got == cheapest {
		t.Errorf("bound to a %s, which has no capacity", got)
	}
	e.settled(2)
}

// A launch batch is only partly filled. The rest is launched elsewhere, and nothing twice.
func TestPartialFulfilmentKeepsWhatCame(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	e.pods("probe", 1, "1500m", "2Gi")
	first := e.bound("probe", 1)[0]
	cheapest := e.nodes()[first.Spec.NodeName].Labels[corev1.LabelInstanceTypeStable]
	for _, z := range zones {
		e.sim.SetCapacity(cheapest, z, "on-demand", 2)
	}
	e.pods("web", 20, "1500m", "2Gi", anti)
	e.bound("web", 20)
	e.settled(len(e.claims()))
	if n := e.launches(); n != len(e.claims()) {
		t.Errorf("%d instances launched for %d claims", n, len(e.claims()))
	}
}

// No launch succeeds at all: the pods get an event about it, launches back off, and when they succeed again, the pods get their nodes.
func TestLaunchThatFailsEntirelyBacksOff(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	none := e.sim.Before("CreateFleet", func(*ec2.Request) *ec2.Fault {
		return &ec2.Fault{Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation.", Status: 403}
	})
	e.apply(nodeClass, nodePool)
	e.pods("web", 5, "1", "1Gi")
	note := e.eventOf("web-0", "LaunchFailed")
	if !strings.Contains(note, "not authorized") {
		t.Errorf("the event does not say why: %s", note)
	}
	begin := time.Now()
	calls := len(e.sim.Calls("CreateFleet"))
	e.eventOf("web-0", "FailedScheduling")
	if perSecond := float64(len(e.sim.Calls("CreateFleet"))-calls) / (1 + time.Since(begin).Seconds()); perSecond > 5 {
		t.Errorf("%.1f launch calls per second while all fail", perSecond)
	}
	none()
	on := map[string]bool{} // NodeClaims whose launches have failed may still be there
	for _, p := range e.bound("web", 5) {
		on[p.Spec.NodeName] = true
	}
	e.settled(len(on))
}
