package provisioning

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// Preemption had its time, and the scheduler has found a node for the pod meanwhile: it is at Permit or PreBind.
func TestPodsBeingBoundAreNoDemand(t *testing.T) {
	leave := func(w *world, pod *corev1.Pod, class *capacity.Class) {
		w.reservations.SubmitLater(capacity.RefOf(pod), class)
	}
	assume := func(w *world, pod *corev1.Pod, _ *capacity.Class) { _ = w.reservations.Assume(pod.UID, "old", false) }
	for name, tt := range map[string]struct {
		steps []func(*world, *corev1.Pod, *capacity.Class)
		want  int
	}{
		"found after it was left to preemption":  {steps: []func(*world, *corev1.Pod, *capacity.Class){leave, assume}},
		"found before it was left to preemption": {steps: []func(*world, *corev1.Pod, *capacity.Class){assume, leave}},
		"not found":                              {steps: []func(*world, *corev1.Pod, *capacity.Class){leave}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, pod := newWorld(), unscheduled(0)
			w.pending.Handler().OnAdd(pod, false)
			class, err := w.pending.Classes.Class(pod)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range tt.steps {
				step(w, pod, class)
			}
			w.clock.Step(time.Minute)
			(&Effects{reservations: w.reservations, pending: w.pending}).later()
			var queued []ledger.Waiting
			w.reservations.Read(func(l ledger.Reader) { queued = l.QueuedPods(l.Queue()) })
			if len(queued) != tt.want {
				t.Errorf("%d pods are queued, want %d", len(queued), tt.want)
			}
		})
	}
}
