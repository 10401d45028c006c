package disruption

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clienttesting "k8s.io/client-go/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/kept"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// deploy makes a pod that is controlled one of Deployment web, which asks for a roll-out.
func (w *world) deploy(replicas int32) {
	w.t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web", Generation: 1, Annotations: map[string]string{objects.AnnotationMove: objects.MoveRollout}},
		Spec:   appsv1.DeploymentSpec{Replicas: &replicas},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: replicas}}
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-one", UID: "rs", Annotations: d.Annotations,
		OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "web", Controller: new(true)}}}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
	if err := w.objects.Add(d); err != nil {
		w.t.Fatal(err)
	}
	if err := w.factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(rs); err != nil {
		w.t.Fatal(err)
	}
}

func ofWeb(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-one", UID: "rs", Controller: new(true)}}
}

// may has the API server answer whether Deployments may be patched, and waits until the controller knows.
func (w *world) may(yes bool) {
	w.t.Helper()
	w.kube.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		ask := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		ask.Status.Allowed = yes && ask.Spec.ResourceAttributes.Verb == "patch" && ask.Spec.ResourceAttributes.Resource == "deployments"
		return true, ask, nil
	})
	ctx, end := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.c.surges.Run(ctx) })
	w.t.Cleanup(func() { end(); running.Wait() })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
	ofWeb(pod)
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		ask := w.c.surges.Of(pod, true)
		return ask != nil && (ask.Err == nil) == yes && (yes || strings.Contains(ask.Err.Error(), "isn't bound")), nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) restarts() (n int) {
	for _, a := range w.kube.Actions() {
		if a.Matches("patch", "deployments") {
			n++
		}
	}
	return n
}

// surgingWorld has a move of node a with two pods: one of Deployment web, which no budget allows to be evicted, and another.
func surgingWorld(t *testing.T) (*world, *planner) {
	t.Helper()
	w, p := consolidating(t)
	for _, name := range []string{"a", "receiver"} {
		w.machine(name)
	}
	w.bind("web", "node-a", web, ofWeb)
	w.bind("other", "node-a", controlled)
	w.bind("x", "node-receiver", controlled)
	w.pdb("pdb")
	w.deploy(1)
	w.may(true)
	p.ready = true
	p.result = &consolidation.Result{Moves: []consolidation.Due{due("m1", []string{"node-a"})}}
	w.fenced["node-a"] = true
	w.mustPass()
	return w, p
}

// When the capacity is ready the Deployment is restarted, once; when its pod has gone the node is drained.
func TestMoveSurges(t *testing.T) {
	w, p := surgingWorld(t)
	for range 3 {
		w.clock.Step(time.Minute)
		w.mustPass()
	}
	if n := w.restarts(); n != 1 || len(w.deleted) > 0 || !disrupted(w.node("node-a")) {
		t.Fatalf("%d restarts, deleted %v", n, w.deleted)
	}
	if diff := cmp.Diff([]string{"surge m1 node-a/web"}, p.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	d, err := w.kube.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != "2026-03-01T12:00:00Z" {
		t.Errorf("annotations %v (%v)", d.Spec.Template.Annotations, err)
	}
	if err := w.objects.Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", "web"); err != nil {
		t.Fatal(err)
	}
	w.mustPass()
	if diff := cmp.Diff([]string{"a"}, w.deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if !slices.Contains(p.calls, "begin m1 node-a/other") {
		t.Errorf("calls %q", p.calls)
	}
	if !slices.ContainsFunc(w.events, func(e string) bool { return strings.HasPrefix(e, "web Normal "+reasonSurge) }) {
		t.Errorf("events %q", w.events)
	}
}

// A node from which all pods have gone by a roll-out is drained, too.
func TestMoveOfOnePodSurges(t *testing.T) {
	w, _ := surgingWorld(t)
	for _, name := range []string{"web", "other"} {
		if err := w.objects.Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", name); err != nil {
			t.Fatal(err)
		}
	}
	w.mustPass()
	if diff := cmp.Diff([]string{"a"}, w.deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}

// A move whose pods don't leave within ten minutes is given up, and the time until the next doubles.
func TestSurgeInVain(t *testing.T) {
	w, p := surgingWorld(t)
	w.clock.Step(moveTimeout)
	w.mustPass()
	if slices.Contains(p.calls, "forget m1") {
		t.Fatal("given up too early")
	}
	w.clock.Step(time.Second)
	w.mustPass()
	if !slices.Contains(p.calls, "forget m1") || disrupted(w.node("node-a")) || len(w.deleted) > 0 || w.fenced["node-a"] {
		t.Fatalf("not given up: calls %q, deleted %v", p.calls, w.deleted)
	}
	for _, want := range []string{"web Warning " + reasonSurgeGivenUp, "a Normal " + reasonMoveGivenUp} {
		if !slices.ContainsFunc(w.events, func(e string) bool {
			return strings.HasPrefix(e, want) && strings.Contains(e, "pod default/web is still there: it is being replaced by a roll-out of Deployment default/web")
		}) {
			t.Errorf("no event %q in %q", want, w.events)
		}
	}
	m := &w.c.passes.consolidations.moves.memory
	if f := m.failed["a"]; f.bought != 1 || !f.until.Equal(w.clock.Now().Add(moveBackOff)) {
		t.Errorf("remembered %+v", f)
	}
	m.fail(&candidate{claim: w.claim("a")}, errors.New("again"), false, true, w.clock.Now())
	if f := m.failed["a"]; !f.until.Equal(w.clock.Now().Add(2 * moveBackOff)) {
		t.Errorf("after the second time %+v", f)
	}
}

// A node with a terminationGracePeriod is drained in any case once it has drifted: pods that a roll-out hasn't moved within ten minutes are evicted.
func TestSurgeWithDeadline(t *testing.T) {
	w, _ := consolidating(t)
	w.machine("a")
	w.deploy(1)
	v := w.c.passes.consolidations.moves
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}, Spec: corev1.PodSpec{NodeName: "node-a"}}
	mv := &move{Due: consolidation.Due{Move: consolidation.Move{Reason: consolidation.Drifted}}, sources: []*source{{candidate: &candidate{claim: w.claim("a"), node: w.node("node-a")}}},
		surging: surging{since: epoch, pods: map[types.UID]types.NamespacedName{"web": {Namespace: "default", Name: "web"}}}}
	if err := v.surged(mv, []*corev1.Pod{pod}, epoch.Add(moveTimeout)); err == nil {
		t.Error("a pod of a node without deadline is evicted")
	}
	mv.sources[0].claim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	if err := v.surged(mv, []*corev1.Pod{pod}, epoch.Add(moveTimeout-time.Second)); err == nil {
		t.Error("it is evicted too early")
	}
	if err := v.surged(mv, []*corev1.Pod{pod}, epoch.Add(moveTimeout)); err != nil || !mv.surging.over {
		t.Errorf("it isn't evicted: %v", err)
	}
	if diff := cmp.Diff([]string{"web Warning " + reasonSurgeGivenUp + ": The roll-out didn't move the pods off their node in time: they are evicted, because the NodeClaim has a terminationGracePeriod"}, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if left := mv.surging.without([]*corev1.Pod{pod}); len(left) != 0 {
		t.Errorf("capacity is asked for again for %v", left)
	}
}

// Without the right the node is kept, and says which Deployment asks for what; pods that don't ask are evicted, or keep the node by their budget.
func TestNodesKeptForTheRight(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replicas int32
		pdb, may bool
		want     string
	}{
		{"a single replica", 1, false, false, "Surge: Deployment default/web asks to be moved by a roll-out (annotation dovetail.sh/move), for pod default/web: the role dovetail-surge isn't bound, so Dovetail may not patch Deployments"},
		{"several replicas without budget", 2, false, false, ""},
		{"several replicas with a budget", 2, true, false, "Surge: Deployment default/web asks"},
		{"a single replica with the right", 1, false, true, ""},
		{"several replicas with a budget and the right", 2, true, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, p := consolidating(t)
			w.machine("a")
			w.bind("web", "node-a", web, ofWeb)
			if tc.pdb {
				w.pdb("pdb")
			}
			w.deploy(tc.replicas)
			w.may(tc.may)
			w.mustPass()
			got := ""
			if k := p.asked[0].Candidates[0].Blocked; k != nil {
				got = kept.Text(k)
			}
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("kept: %q, want %q", got, tc.want)
			}
		})
	}
}
