package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The scheduler built with the race detector, from demand to running pods to its end. Alone: it needs many times the
// processors of the others.
func TestFiftyPodsUnderTheRaceDetector(t *testing.T) {
	e := start(t, func(s *setting) { s.race = true })
	e.apply(nodeClass, nodePool)
	e.pods("web", 20, "500m", "512Mi")
	e.pods("spread", 15, "500m", "512Mi", spread(corev1.LabelTopologyZone))
	e.pods("alone", 5, "500m", "512Mi", anti)
	e.pods("bare", 10, "500m", "512Mi", func(p *corev1.Pod) { p.OwnerReferences = nil })
	for app, n := range map[string]int{"web": 20, "spread": 15, "alone": 5, "bare": 10} {
		e.running(app, n)
	}
	e.settled(len(e.claims()))
	e.sched.Stop()
	log, err := e.sched.Log()
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.Index(log, "DATA RACE"); i >= 0 {
		t.Errorf("the race detector has found something:\n%s", log[i:min(len(log), i+4000)])
	}
}
