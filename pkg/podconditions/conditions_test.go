package podconditions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// world is Conditions that run, in the time of a bubble, on an API server. informer is what they know of pods.
type world struct {
	*testing.T
	*Conditions
	pods     typedv1.PodInterface
	informer cache.Indexer

	mu     sync.Mutex
	closed map[types.UID]string // pods with closed gates, and what they wait for
	asked  []string             // the pods of the requests so far
	answer error                // of all requests; nil: that of the API server
}

func inWorld(t *testing.T, do func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, informer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), closed: map[types.UID]string{}}
		w.Conditions = New(clock.RealClock{}, func(uid types.UID) (bool, string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			why, ok := w.closed[uid]
			return ok, why
		})
		api := kubeapi.New(scheme.Scheme, clock.RealClock{})
		own := api.Client()
		own.Before = func(c *kubeapi.Call) *kubeapi.Fault {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, c.Name)
			if w.answer != nil {
				return &kubeapi.Fault{Err: w.answer}
			}
			return nil
		}
		w.pods = kubernetes.NewForConfigOrDie(api.Client().Config()).CoreV1().Pods("default")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			w.Conditions.Run(ctx, kubernetes.NewForConfigOrDie(own.Config()), listersv1.NewPodLister(w.informer))
			close(ended)
		}()
		do(w)
		stop()
		<-ended
	})
}

// pass lets time pass, and all that is due in it happen.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// create creates a pod, which the informer shows, and closes its gate.
func (w *world) create(name string, conditions ...corev1.PodCondition) *corev1.Pod {
	w.Helper()
	p, err := w.pods.Create(w.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if p.Status.Conditions = conditions; len(conditions) > 0 {
		if p, err = w.pods.UpdateStatus(w.Context(), p, metav1.UpdateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	w.show(p)
	w.close(p, "its node is being launched")
	return p
}

func (w *world) close(p *corev1.Pod, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed[p.UID] = why
}

func (w *world) open(p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.closed, p.UID)
}

// requests returns the pods of the requests so far.
func (w *world) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = err
}

func (w *world) show(p *corev1.Pod) {
	w.Helper()
	if err := w.informer.Update(p); err != nil {
		w.Fatal(err)
	}
}

func (w *world) bind(p *corev1.Pod) {
	w.Helper()
	if err := w.pods.Bind(w.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(p *corev1.Pod) {
	w.Helper()
	if err := w.pods.Delete(w.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) get(name string) *corev1.Pod {
	w.Helper()
	p, err := w.pods.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// says returns what the pod's condition says.
func (w *world) says(name string) string {
	w.Helper()
	for _, c := range w.get(name).Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
		}
	}
	return ""
}

func condition(status corev1.ConditionStatus, reason string) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodScheduled, Status: status, Reason: reason, LastTransitionTime: metav1.Unix(1_000_000, 0)}
}

func TestConditions(t *testing.T) {
	const launching = "False Unschedulable its node is being launched"
	var gone bool
	for _, tc := range []struct {
		name  string
		has   []corev1.PodCondition
		at3s  func(w *world, p *corev1.Pod)
		want  string
		asked int
	}{
		{name: "it waits", want: launching, asked: 1},
		{name: "it waits, and has other conditions", has: []corev1.PodCondition{{Type: "example.com/Quota", Status: corev1.ConditionTrue}}, want: launching, asked: 1},
		{name: "it is bound", at3s: func(w *world, p *corev1.Pod) { w.bind(p); w.show(w.get(p.Name)) }, want: "True"},
		{name: "it is bound, which the informer doesn't show yet", at3s: func(w *world, p *corev1.Pod) { w.bind(p) }, want: "True", asked: 2},
		{name: "its gate opens", at3s: func(w *world, p *corev1.Pod) { w.open(p) }},
		{name: "it is being deleted", at3s: func(w *world, p *corev1.Pod) {
			p.DeletionTimestamp = ptr.To(metav1.Now())
			w.show(p)
		}},
		{name: "it is gone", at3s: func(w *world, p *corev1.Pod) { w.remove(p); gone = true }, asked: 1},
		{name: "it is gone, and another has its name", at3s: func(w *world, p *corev1.Pod) {
			w.remove(p)
			w.create(p.Name)
		}},
		{name: "the same, which the informer doesn't show yet", at3s: func(w *world, p *corev1.Pod) {
			w.remove(p)
			w.create(p.Name)
			w.show(p)
		}, asked: 2},
		{name: "it has changed, which the informer shows later", at3s: func(w *world, p *corev1.Pod) {
			p.Labels = map[string]string{"a": "b"}
			changed, err := w.pods.Update(w.Context(), p, metav1.UpdateOptions{})
			if err != nil {
				w.Fatal(err)
			}
			go func() {
				<-time.After(5 * time.Second)
				w.show(changed)
			}()
		}, want: launching, asked: 2},
		{name: "a scheduling cycle of it has failed", has: []corev1.PodCondition{condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable)}, want: "False Unschedulable"},
		{name: "a scheduling cycle of it has failed by accident", has: []corev1.PodCondition{condition(corev1.ConditionFalse, corev1.PodReasonSchedulerError)}, want: "False SchedulerError"},
		{name: "its last scheduling gate has been removed", has: []corev1.PodCondition{condition(corev1.ConditionFalse, corev1.PodReasonSchedulingGated)}, want: launching, asked: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := w.create("web", tc.has...)
				w.Add(p)
				w.Add(p)
				w.pass(3 * time.Second)
				if len(w.requests()) > 0 {
					t.Errorf("asked after 3s")
				}
				if tc.at3s != nil {
					tc.at3s(w, p.DeepCopy())
				}
				w.pass(9 * time.Second) // time for another attempt
				if gone {
					gone = false
				} else if diff := cmp.Diff(tc.want, w.says("web")); diff != "" {
					t.Errorf("condition (-want +got):\n%s", diff)
				}
				if len(w.requests()) != tc.asked {
					t.Errorf("%d requests, want %d", len(w.requests()), tc.asked)
				}
			})
		})
	}
}

// The condition is written once, whatever happens while the pod waits.
func TestOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		before := w.create("web", condition(corev1.ConditionFalse, corev1.PodReasonSchedulingGated))
		w.Add(before)
		w.pass(6 * time.Second)
		after := w.get("web")
		if c := scheduled(after); c.Reason != corev1.PodReasonUnschedulable || !c.LastTransitionTime.Equal(&before.Status.Conditions[0].LastTransitionTime) {
			t.Errorf("condition %v; its status has not changed", c)
		}
		w.show(after)
		w.close(before, "its node has not registered yet")
		w.Add(before) // as the queue still has it
		w.Add(after)
		w.pass(time.Minute)
		if len(w.requests()) != 1 || w.get("web").ResourceVersion != after.ResourceVersion {
			t.Errorf("%d requests", len(w.requests()))
		}
	})
}

// A write that fails is repeated later, unless that is useless.
func TestFailedWrites(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	for _, tc := range []struct {
		err  error
		want int // requests in 13 s
	}{
		{apierrors.NewInternalError(errors.New("etcd")), 2},
		{apierrors.NewForbidden(resource, "web", errors.New("no role")), 1},
	} {
		inWorld(t, func(w *world) {
			w.Add(w.create("web"))
			w.fail(tc.err)
			w.pass(13 * time.Second)
			if len(w.requests()) != tc.want {
				t.Errorf("%v: %d requests, want %d", tc.err, len(w.requests()), tc.want)
			}
		})
	}
}

// Of many pods, those that have waited longest get the condition first, and pods that no longer wait don't hold up the others.
func TestPace(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 10 * perSecond {
			p := w.create(fmt.Sprintf("p%03d", i))
			w.Add(p)
			if i < 8*perSecond {
				w.open(p)
			}
		}
		w.pass(patience)
		for _, want := range []int{perSecond, 2 * perSecond, 2 * perSecond} {
			if len(w.requests()) != want {
				t.Fatalf("%d requests, want %d", len(w.requests()), want)
			}
			w.pass(time.Second)
		}
		for i, name := range w.requests() {
			if want := fmt.Sprintf("p%03d", 8*perSecond+i); name != want {
				t.Fatalf("request %d is for %s, want %s", i, name, want)
			}
		}
	})
}
