package surge

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	appslisters "k8s.io/client-go/listers/apps/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var web = types.NamespacedName{Namespace: "d", Name: "web"}

// world is a Deployment with one pod, and Requests with the right.
type world struct {
	*Requests
	clock      *testingclock.FakeClock
	kube       *fake.Clientset
	deployment *appsv1.Deployment
	rs         *appsv1.ReplicaSet
	namespace  *corev1.Namespace
	claim      *corev1.PersistentVolumeClaim
	pod        *corev1.Pod
	known      cache.Indexer // Deployments
}

func newWorld(t *testing.T, change func(*world)) *world {
	t.Helper()
	one := int32(1)
	asking := map[string]string{objects.AnnotationMove: objects.MoveRollout}
	w := &world{
		clock: testingclock.NewFakeClock(epoch),
		deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", UID: "web", Generation: 3, Annotations: asking},
			Spec:   appsv1.DeploymentSpec{Replicas: &one},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}},
		rs: &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web-one", UID: "rs", Annotations: asking,
			OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "web", Controller: new(true)}}}, Spec: appsv1.ReplicaSetSpec{Replicas: &one}},
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d"}},
		claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}},
		pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web-one-x",
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-one", UID: "rs", Controller: new(true)}}}},
	}
	if change != nil {
		change(w)
	}
	w.kube = fake.NewClientset(w.deployment)
	f := informers.NewSharedInformerFactory(w.kube, 0)
	w.Requests = New(w.kube, f, w.clock)
	for indexer, obj := range map[cache.Indexer]any{f.Apps().V1().ReplicaSets().Informer().GetIndexer(): w.rs, f.Core().V1().Namespaces().Informer().GetIndexer(): w.namespace,
		f.Core().V1().PersistentVolumeClaims().Informer().GetIndexer(): w.claim} {
		if err := indexer.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	w.known = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := w.known.Add(w.deployment); err != nil {
		t.Fatal(err)
	}
	w.state.Store(&rightState{lister: appslisters.NewDeploymentLister(w.known), synced: func() bool { return true }})
	return w
}

func annotated(value string) map[string]string {
	return map[string]string{objects.AnnotationMove: value}
}

func TestRequests(t *testing.T) {
	const none = "none"
	many := func(w *world) {
		n := int32(3)
		w.deployment.Spec.Replicas, w.rs.Spec.Replicas = &n, &n
		w.deployment.Status.Replicas, w.deployment.Status.UpdatedReplicas, w.deployment.Status.AvailableReplicas = n, n, n
	}
	volume := func(w *world) {
		w.pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
	for _, tc := range []struct {
		name    string
		blocked bool
		change  func(*world)
		want    string // none, or a part of the error
	}{
		{name: "a single replica"},
		{name: "a single replica that may not be evicted", blocked: true},
		{name: "several", change: many, want: none},
		{name: "several that may not be evicted", blocked: true, change: many},
		{name: "nothing asks", change: func(w *world) {
			w.deployment.Annotations = nil
			w.rs.Annotations = nil
		}, want: none},
		{name: "the namespace asks", change: func(w *world) {
			w.deployment.Annotations, w.rs.Annotations, w.namespace.Annotations = nil, nil, annotated("rollout")
		}},
		{name: "the namespace asks, the Deployment doesn't want it", change: func(w *world) {
			w.deployment.Annotations, w.rs.Annotations, w.namespace.Annotations = annotated("evict"), annotated("evict"), annotated("rollout")
		}, want: none},
		{name: "another value", change: func(w *world) { w.deployment.Annotations, w.rs.Annotations = annotated("yes"), annotated("yes") }, want: none},
		{name: "the Deployment doesn't ask any more", change: func(w *world) { w.deployment.Annotations = nil }, want: none},
		{name: "a pod without controller", change: func(w *world) { w.pod.OwnerReferences = nil }, want: none},
		{name: "a pod of a StatefulSet", change: func(w *world) { w.pod.OwnerReferences[0].Kind = "StatefulSet" }, want: none},
		{name: "a ReplicaSet of that name, another one", change: func(w *world) { w.rs.UID = "another" }, want: none},
		{name: "a ReplicaSet without Deployment", change: func(w *world) { w.rs.OwnerReferences = nil }, want: none},
		{name: "being deleted", change: func(w *world) { w.deployment.DeletionTimestamp = &metav1.Time{Time: epoch} }, want: "being deleted"},
		{name: "paused", change: func(w *world) { w.deployment.Spec.Paused = true }, want: "the Deployment is paused"},
		{name: "Recreate", change: func(w *world) { w.deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }, want: "the Deployment's strategy creates no pod"},
		{name: "no surge", change: func(w *world) {
			w.deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(0))}
		}, want: "the Deployment's strategy creates no pod"},
		{name: "a small percentage", change: func(w *world) {
			w.deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromString("1%"))}
		}},
		{name: "not observed", change: func(w *world) { w.deployment.Generation = 4 }, want: "isn't finished"},
		{name: "not updated", change: func(w *world) { w.deployment.Status.UpdatedReplicas = 0 }, want: "isn't finished"},
		{name: "not available", change: func(w *world) { w.deployment.Status.AvailableReplicas = 0 }, want: "isn't finished"},
		{name: "old pods are left", change: func(w *world) { w.deployment.Status.Replicas = 2 }, want: "isn't finished"},
		{name: "restarted a while ago", change: func(w *world) {
			w.deployment.Spec.Template.Annotations = map[string]string{annotationRestartedAt: epoch.Add(-14 * time.Minute).Format(time.RFC3339)}
		}, want: "the next restart is made after 2026-03-01T12:01:00Z"},
		{name: "restarted long ago", change: func(w *world) {
			w.deployment.Spec.Template.Annotations = map[string]string{annotationRestartedAt: epoch.Add(-15 * time.Minute).Format(time.RFC3339)}
		}},
		{name: "restarted by a tool with a time of its own", change: func(w *world) {
			w.deployment.Spec.Template.Annotations = map[string]string{annotationRestartedAt: "yesterday"}
		}},
		{name: "a volume for one node", change: volume, want: "PersistentVolumeClaim data can't be used on two nodes"},
		{name: "a volume for many nodes", change: func(w *world) {
			volume(w)
			w.claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}},
		{name: "a volume that isn't known", change: func(w *world) { volume(w); w.claim.Name = "another" }, want: "data isn't known"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.change)
			got := w.Of(w.pod, tc.blocked)
			switch {
			case (got == nil) != (tc.want == none):
				t.Fatalf("request %+v", got)
			case got == nil:
			case got.Deployment != web:
				t.Errorf("of %s", got.Deployment)
			case (got.Err == nil) != (tc.want == "") || got.Err != nil && !strings.Contains(got.Err.Error(), tc.want):
				t.Errorf("error %v, want %q", got.Err, tc.want)
			}
		})
	}
}

// A Deployment is restarted as it was looked at, and not again within a quarter of an hour.
func TestRestart(t *testing.T) {
	w := newWorld(t, nil)
	d, err := w.Restart(t.Context(), web)
	if err != nil || d.Spec.Template.Annotations[annotationRestartedAt] != "2026-03-01T12:00:00Z" {
		t.Fatalf("%v, %v", d, err)
	}
	for _, a := range w.kube.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok && !strings.Contains(string(p.GetPatch()), `"uid":"web"`) {
			t.Errorf("patch %s", p.GetPatch())
		}
	}
	if _, err := w.Restart(t.Context(), web); err == nil || !strings.Contains(err.Error(), "the Deployment was restarted at") {
		t.Errorf("a second time: %v", err)
	}
	w = newWorld(t, nil)
	w.kube.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(appsv1.Resource("deployments"), "web", errors.New("policy"))
	})
	if _, err := w.Restart(t.Context(), web); !apierrors.IsForbidden(err) {
		t.Errorf("a policy refuses it: %v", err)
	}
	w = newWorld(t, nil)
	conflicts := 0
	w.kube.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts++
		return conflicts < restartTries, nil, apierrors.NewConflict(appsv1.Resource("deployments"), "web", errors.New("its status was written"))
	})
	if _, err := w.Restart(t.Context(), web); err != nil || conflicts != restartTries {
		t.Errorf("after %d conflicts: %v", conflicts, err)
	}
}

// After restarts in vain the next one waits for longer each time, up to four hours; one that works ends that, and so does time.
func TestBackOff(t *testing.T) {
	w := newWorld(t, nil)
	waits := func(want time.Duration) {
		t.Helper()
		if err := w.Of(w.pod, true).Err; err == nil || !strings.Contains(err.Error(), w.clock.Now().Add(want).Format(time.RFC3339)) {
			t.Errorf("%v, want it to wait for %s", err, want)
		}
		w.clock.Step(want)
		if err := w.Of(w.pod, true).Err; err != nil {
			t.Errorf("after %s: %v", want, err)
		}
	}
	for _, want := range []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 4 * time.Hour} {
		w.Ended(web, false)
		waits(want)
	}
	w.clock.Step(restartRestMost + time.Second)
	w.Ended(web, false)
	waits(15 * time.Minute)
	w.Ended(web, false)
	w.Ended(web, true)
	if err := w.Of(w.pod, true).Err; err != nil {
		t.Errorf("after one that worked: %v", err)
	}
}

// The right is asked for only when a pod asks for a roll-out, and again after a while; Deployments are watched as long as it is there.
func TestRight(t *testing.T) {
	w := newWorld(t, nil)
	w.state.Store(&rightState{err: errUnknown})
	var mu sync.Mutex
	allowed, broken, reviews := false, false, 0
	w.kube.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		reviews++
		if broken {
			return true, nil, errors.New("no answer")
		}
		ask := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		ask.Status.Allowed = allowed
		return true, ask, nil
	})
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	running.Go(func() { w.Run(ctx) })
	if reviews != 0 {
		t.Error("it was asked though nothing needs it")
	}
	// next has the right reviewed again and waits for what it leads to.
	next := func(yes, fails bool, want string) {
		t.Helper()
		mu.Lock()
		allowed, broken = yes, fails
		mu.Unlock()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			got := ""
			if err := w.Of(w.pod, false).Err; err != nil {
				got = err.Error()
			}
			mu.Lock()
			n := reviews
			mu.Unlock()
			if got == want && n > 0 && w.clock.HasWaiters() {
				w.clock.Step(reviewEvery)
				return
			}
			if w.clock.HasWaiters() && n > 0 {
				w.clock.Step(reviewEvery)
			}
		}
		t.Fatalf("%v, want %q", w.Of(w.pod, false).Err, want)
	}
	next(false, false, errNoRight.Error())
	next(true, false, "")
	next(false, true, "")
	next(false, false, errNoRight.Error())
	next(true, false, "")
}
