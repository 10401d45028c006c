package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// TestAdoptingBesideActivations has pods adopted under the lock of the real scheduling queue while other goroutines open their gates, activate them, and
// have the queue look at them again. All pods get into the active queue in the end: no call waits for a lock for ever, and no activation is lost.
func TestAdoptingBesideActivations(t *testing.T) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0)))))
	defer cancel()
	d := newDovetail()
	sched := d.twoProfiles(ctx, t, false)
	const nodes, perNode = 20, 10
	var pods []*corev1.Pod
	byUID := map[types.UID]*corev1.Pod{}
	for i := range nodes * perNode {
		name := fmt.Sprint("pod-", i)
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: ptr.To(true)}}},
			Spec: corev1.PodSpec{SchedulerName: "ours", Containers: []corev1.Container{{Name: "main"}}, Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}}},
		}
		pods, byUID[p.UID] = append(pods, p), p
	}
	class, err := d.classes.Class(pods[0])
	if err != nil {
		t.Fatal(err)
	}
	d.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		for i := range nodes {
			claim := fmt.Sprint("claim-", i)
			l.AddNode(claim, &capacity.Node{}, nil, true, now)
			for range perNode {
				l.Commit(claim, []capacity.Placement{{Class: class, Owner: "web", Node: claim}}, now)
			}
		}
	})

	effects := func() { // as pkg/provisioning carries them out
		var open []*corev1.Pod
		for _, ref := range d.reservations.Take().Activate {
			open = append(open, byUID[ref.UID])
		}
		queue{sched}.Activate(open)
	}
	var work, others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.reservations.Wake():
				effects()
			}
		}
	})
	work.Go(func() { // the scheduler's handler of pods
		for _, p := range pods {
			sched.SchedulingQueue.Add(ctx, p)
		}
	})
	work.Go(func() { // the nodes appear
		for i := range nodes {
			d.reservations.Step(func(l *ledger.Ledger, now time.Time) {
				l.Named(fmt.Sprint("claim-", i), fmt.Sprint("node-", i), "")
				l.Cached(fmt.Sprint("node-", i), ledger.NodeStatus{Managed: true}, now)
			})
		}
	})
	work.Go(func() { // other events
		for range nodes {
			queue{sched}.Activate(pods)
			sched.SchedulingQueue.MoveAllToActiveOrBackoffQueue(klog.FromContext(ctx), fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, bootingNode(), nil)
		}
	})
	work.Wait()
	cancel()
	others.Wait()
	effects()
	if n := len(sched.SchedulingQueue.PodsInActiveQ()); n != len(pods) {
		t.Errorf("%d of %d pods were let go", n, len(pods))
	}
	for _, p := range pods {
		if !d.reservations.Knows(p.UID) {
			t.Errorf("%s has no reservation", p.Name)
		}
	}
}

// TestAnticipatedPodsWaitBehindTheGate runs the whole program. The first pod of a ReplicaSet gets a node, and capacity is reserved there for the other
// two. These are created while the node still has a startup taint: they have no failed scheduling cycle, whose message would begin with the number of
// nodes. One that waits for longer than 5 s gets the condition from us, once.
func TestAnticipatedPodsWaitBehindTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, api, fake := onFakeCloud(t)
		kube := kubernetes.NewForConfigOrDie(api.Client().Config())
		w := &startupTaint{T: t, ctx: ctx, kube: kube, history: map[string][]string{}}
		w.prepare(api)
		pods, err := kube.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		go w.record(pods)

		w.create("web-0")
		<-time.After(3 * time.Second) // its node is there; the other reservations last for 10 s
		w.create("web-1")
		<-time.After(4 * time.Second)
		w.expect("web-1", "")
		<-time.After(2 * time.Second)
		w.expect("web-1", "", "False Unschedulable its node still has the taint example.com/agent:NoSchedule")
		w.create("web-2")
		<-time.After(3 * time.Second)
		w.ready()
		<-time.After(20 * time.Second)
		w.expect("web-1", "", "False Unschedulable its node still has the taint example.com/agent:NoSchedule", "True")
		w.expect("web-2", "", "True")
		if instances, err := fake.List(ctx); err != nil || len(instances) != 1 {
			t.Errorf("instances %v, %v", instances, err)
		}
	})
}

// startupTaint is a cluster whose pool has a startup taint, which stays until ready.
type startupTaint struct {
	*testing.T
	ctx  context.Context
	kube kubernetes.Interface

	mu      sync.Mutex
	history map[string][]string // by pod: the values of its condition PodScheduled
}

// prepare creates a pool and a ReplicaSet of three pods.
func (w *startupTaint) prepare(api *kubeapi.Server) {
	w.Helper()
	pool := poolOfFakeCloud()
	pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "example.com/agent", Effect: corev1.TaintEffectNoSchedule}}
	create(w.T, api, karpenter.NodePools.GroupVersion().WithResource(karpenter.NodePools.Resource), karpenter.NodePools.Kind, pool)
	labels := map[string]string{"app": "web"}
	if _, err := w.kube.AppsV1().ReplicaSets(metav1.NamespaceDefault).Create(w.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podForFakeCloud().Spec}}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *startupTaint) create(name string) {
	w.Helper()
	set, err := w.kube.AppsV1().ReplicaSets(metav1.NamespaceDefault).Get(w.ctx, "web", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	pod := podForFakeCloud()
	pod.Name, pod.Labels = name, map[string]string{"app": "web"}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	if _, err := w.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(w.ctx, pod, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// ready removes the startup taint of all nodes.
func (w *startupTaint) ready() {
	w.Helper()
	nodes, err := w.kube.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, n := range nodes.Items {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.com/agent" })
		if _, err := w.kube.CoreV1().Nodes().Update(w.ctx, &n, metav1.UpdateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

// record follows the pods until the watch ends.
func (w *startupTaint) record(events watch.Interface) {
	defer events.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case e, ok := <-events.ResultChan():
			if !ok {
				return
			}
			if pod, ok := e.Object.(*corev1.Pod); ok {
				w.note(pod)
			}
		}
	}
}

func (w *startupTaint) note(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := ""
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			said = strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
		}
	}
	if before := w.history[pod.Name]; len(before) == 0 || before[len(before)-1] != said {
		w.history[pod.Name] = append(before, said)
	}
}

func (w *startupTaint) expect(pod string, said ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(said, w.history[pod]); diff != "" {
		w.Errorf("what the condition of %s has said (-want +got):\n%s", pod, diff)
	}
}
