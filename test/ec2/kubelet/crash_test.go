package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	p, err := w.api.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func readyPod(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestACrashingPodRemainsRunning(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(time.Minute)
		w.create(pod("a", annotated(CrashAfter, "5s")))
		pass(2 * time.Second)
		if p := w.pod("a"); p.Status.Phase != corev1.PodRunning || !readyPod(p) {
			t.Errorf("before its first end: %+v", p.Status)
		}
		pass(6 * time.Second) // from here on, the container waits 10 s for its restart
		p := w.pod("a")
		if s := p.Status.ContainerStatuses[0]; p.Status.Phase != corev1.PodRunning || readyPod(p) || s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" || s.LastTerminationState.Terminated == nil {
			t.Errorf("when it is down: %+v", p.Status)
		}
		pass(10 * time.Second)
		p = w.pod("a")
		if s := p.Status.ContainerStatuses[0]; !readyPod(p) || s.State.Running == nil || s.RestartCount != 1 {
			t.Errorf("when it is up again: %+v", p.Status)
		}
		pass(time.Hour)
		if n := w.pod("a").Status.ContainerStatuses[0].RestartCount; n < 10 || n > 20 {
			t.Errorf("%d restarts in an hour", n)
		}
	})
}

func TestACrashingPodThatIsNotRestartedFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(time.Minute)
		w.create(pod("a", annotated(CrashAfter, "5s"), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
		pass(8 * time.Second)
		w.wantPhases(map[string]string{"a": "Failed"})
	})
}

func TestAnInitContainerThatCrashesKeepsItsPodPending(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(time.Minute)
		w.create(pod("a", annotated(InitCrashAfter, "5s"), func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "pause"}} }))
		pass(time.Hour)
		p := w.pod("a")
		if p.Status.Phase != corev1.PodPending || p.Status.StartTime == nil || len(p.Status.InitContainerStatuses) != 1 || p.Status.InitContainerStatuses[0].RestartCount < 10 {
			t.Errorf("status %+v", p.Status)
		}
	})
}

func TestASlowImage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(time.Minute)
		w.create(pod("a", annotated(PullFor, "12m")))
		pass(11 * time.Minute)
		if p := w.pod("a"); p.Status.Phase != corev1.PodPending || p.Status.ContainerStatuses[0].State.Waiting == nil {
			t.Errorf("while it is pulled: %+v", p.Status)
		}
		pass(2 * time.Minute)
		w.wantPhases(map[string]string{"a": "Running"})
	})
}

// Like the kubelet's own admission: labels and NoExecute taints are checked once, when the kubelet first sees the pod.
func TestPodsThatDontMatchAreRejected(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("g4dn.xlarge", multipartData)) // with a NoExecute taint
		pass(time.Minute)
		w.create(pod("tainted"))
		w.create(pod("elsewhere", tolerant, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }))
		w.create(pod("here", tolerant, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "amd64"} }))
		pass(2 * time.Second)
		w.wantPhases(map[string]string{"tainted": "Failed TaintToleration", "elsewhere": "Failed NodeAffinity", "here": "Running"})
	})
}

// A deleted pod first reaches a final phase: a watcher sees Succeeded or Failed with a deletionTimestamp before the pod disappears.
func TestDeletedPodsSayHowTheyEnded(t *testing.T) {
	for name, want := range map[string]corev1.PodPhase{"service": corev1.PodSucceeded, "job": corev1.PodFailed} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Boot(machine("m5.xlarge", ""))
				pass(time.Minute)
				p := pod(name)
				if name == "job" {
					p = pod(name, runsFor("1h"), ofJob)
				}
				w.create(p)
				pass(2 * time.Second)
				watch, err := w.api.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer watch.Stop()
				p = w.pod(name)
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(time.Now().Add(30*time.Second))), ptr.To[int64](30)
				if _, err := w.api.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				pass(2 * time.Second)
				var last corev1.PodPhase
				for range len(watch.ResultChan()) {
					e := <-watch.ResultChan()
					last = e.Object.(*corev1.Pod).Status.Phase
				}
				if last != want || w.phase(name) != "gone" {
					t.Errorf("it ended as %s and is %s, want %s and gone", last, w.phase(name), want)
				}
			})
		})
	}
}
