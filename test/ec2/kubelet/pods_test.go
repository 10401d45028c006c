package kubelet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// pod returns a pod bound to the node.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{NodeName: nodeName, RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{
			Name: "c", Image: "pause", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// tolerant makes a pod tolerate the taint with which multipartData makes the kubelet register.
func tolerant(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

func asks(name corev1.ResourceName, n string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(n) }
}

func ofJob(p *corev1.Pod) {
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j"}}
}

func runsFor(d string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Annotations = map[string]string{RunFor: d}
	}
}

func (w *world) create(p *corev1.Pod) {
	w.t.Helper()
	if _, err := w.api.CoreV1().Pods(p.Namespace).Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// phase returns the pod's phase with its reason, or "gone".
func (w *world) phase(name string) string {
	w.t.Helper()
	p, err := w.api.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "gone"
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(string(p.Status.Phase) + " " + p.Status.Reason)
}

func (w *world) wantPhases(want map[string]string) {
	w.t.Helper()
	got := map[string]string{}
	for name := range want {
		got[name] = w.phase(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("pods: -want +got:\n%s", diff)
	}
}

// As soon as a watcher sees that a pod has ended, another pod may get its device, even before the kubelet sees its own status update.
func TestDevicesOfPodsThatHaveEnded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("g4dn.xlarge", ""))
		pass(time.Minute)
		next := pod("next", asks("nvidia.com/gpu", "1"), tolerant)
		w.api.PrependReactor("patch", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
			if patch := a.(k8stesting.PatchAction); patch.GetName() == "job" && strings.Contains(string(patch.GetPatch()), string(corev1.PodSucceeded)) {
				n := w.nodeOf(next)
				if _, r := n.admit(next, nil, w.clock.Now()); r != nil {
					t.Errorf("the next one is rejected: %s", r.message)
				}
			}
			return false, nil, nil
		})
		w.create(pod("job", ofJob, runsFor("1m"), asks("nvidia.com/gpu", "1"), tolerant))
		pass(2 * time.Minute)
		w.wantPhases(map[string]string{"job": "Succeeded"})
	})
}

func TestPodsRunWhenTheirNodeDoes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("early")) // bound to a node that doesn't exist yet
		w.Boot(machine("m5.xlarge", ""))
		pass(45 * time.Second)
		w.create(pod("host", func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
		pass(2 * time.Second)
		w.wantPhases(map[string]string{"early": "Pending", "host": "Running"})
		pass(5 * time.Second)
		w.wantPhases(map[string]string{"early": "Running"})
		w.create(pod("late"))
		pass(2 * time.Second)
		w.wantPhases(map[string]string{"late": "Running"})
		p, err := w.api.CoreV1().Pods("default").Get(t.Context(), "late", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		conditions := map[string]string{}
		for _, c := range p.Status.Conditions {
			conditions[string(c.Type)] = string(c.Status)
		}
		if diff := cmp.Diff(map[string]string{"PodScheduled": "True", "PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "True", "ContainersReady": "True"}, conditions); diff != "" {
			t.Errorf("conditions: -want +got:\n%s", diff)
		}
		if !strings.HasPrefix(p.Status.PodIP, "100.64.") || p.Status.HostIP != "10.0.0.4" || !p.Status.ContainerStatuses[0].Ready {
			t.Errorf("status %+v", p.Status)
		}
	})
}

func TestPodsThatEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(time.Minute)
		w.create(pod("job", ofJob))
		w.create(pod("timed", runsFor("20s"), ofJob))
		w.create(pod("service"))
		pass(2 * time.Second)
		w.wantPhases(map[string]string{"job": "Running", "timed": "Running", "service": "Running"})
		pass(5 * time.Second)
		w.wantPhases(map[string]string{"job": "Succeeded", "timed": "Running", "service": "Running"})
		pass(15 * time.Second)
		w.wantPhases(map[string]string{"timed": "Succeeded", "service": "Running"})
		// 4 CPUs less the reserved ones hold three pods of one CPU; the ended pods have released theirs.
		w.create(pod("next"))
		w.create(pod("afternext"))
		pass(2 * time.Second)
		w.wantPhases(map[string]string{"next": "Running", "afternext": "Running"})
	})
}

func TestPodsThatDontFitAreRejected(t *testing.T) {
	for name, tc := range map[string]struct {
		pods func() []*corev1.Pod
		when time.Duration
		want map[string]string
	}{
		"more CPU than the node can give": {
			func() []*corev1.Pod { return []*corev1.Pod{pod("a", asks("cpu", "3")), pod("b", asks("cpu", "3"))} }, time.Minute,
			map[string]string{"a": "Running", "b": "Failed OutOfcpu"},
		},
		"more memory": {
			func() []*corev1.Pod { return []*corev1.Pod{pod("a", asks("memory", "20Gi"))} }, time.Minute, map[string]string{"a": "Failed OutOfmemory"},
		},
		"a GPU before its plugin is up": {
			func() []*corev1.Pod { return []*corev1.Pod{pod("a", asks("nvidia.com/gpu", "1"))} }, 52 * time.Second,
			map[string]string{"a": "Failed UnexpectedAdmissionError"},
		},
		"a GPU after that": {
			func() []*corev1.Pod {
				return []*corev1.Pod{pod("a", asks("nvidia.com/gpu", "1")), pod("b", asks("nvidia.com/gpu", "1"))}
			}, time.Minute,
			map[string]string{"a": "Running", "b": "Failed UnexpectedAdmissionError"},
		},
		"too many pods": {
			func() []*corev1.Pod {
				var out []*corev1.Pod
				for i := range 21 {
					out = append(out, pod(fmt.Sprintf("p%02d", i), asks("cpu", "10m")))
				}
				return out
			}, time.Minute, map[string]string{"p00": "Running", "p19": "Running", "p20": "Failed OutOfpods"},
		},
		"what only the scheduler counts": {
			func() []*corev1.Pod { return []*corev1.Pod{pod("a", asks("example.com/licence", "5"))} }, time.Minute, map[string]string{"a": "Running"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Boot(machine("g4dn.xlarge", multipartData))
				pass(tc.when)
				for _, p := range tc.pods() {
					tolerant(p)
					w.create(p)
				}
				pass(2 * time.Second)
				w.wantPhases(tc.want)
			})
		})
	}
}

func TestDeletedPodsGo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(time.Minute)
		deleting := func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(time.Now().Add(30*time.Second))), ptr.To[int64](30)
		}
		running := pod("running")
		w.create(running)
		pass(2 * time.Second)
		deleting(running)
		if _, err := w.api.CoreV1().Pods("default").Update(t.Context(), running, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.create(pod("neverstarted", deleting))
		synctest.Wait()
		w.wantPhases(map[string]string{"running": "Pending", "neverstarted": "gone"}) // Update wrote the old phase
		pass(time.Second)
		w.wantPhases(map[string]string{"running": "gone"})
	})
}

func TestAPodWithAFinalizerShowsHowItEnded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(time.Minute)
		var deleted []string
		w.create(pod("tracked", ofJob, func(p *corev1.Pod) {
			p.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(time.Now())), ptr.To[int64](0)
		}))
		pass(time.Second)
		for _, a := range w.api.Actions() {
			if a.GetResource().Resource == "pods" && (a.GetVerb() == "delete" || a.GetVerb() == "patch") {
				deleted = append(deleted, a.GetVerb())
			}
		}
		if diff := cmp.Diff([]string{"patch"}, deleted); diff != "" {
			t.Errorf("calls: -want +got:\n%s", diff)
		}
		w.wantPhases(map[string]string{"tracked": "Failed"})
	})
}
