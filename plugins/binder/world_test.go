package binder

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// world is the plugin with a real ledger.
type world struct {
	*testing.T
	*Binder
	reservations *reservations.Ledger
	handle       *handle
}

func newWorld(t *testing.T) *world {
	reservations := reservations.New(clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)))
	h := &handle{}
	return &world{T: t, reservations: reservations, handle: h, Binder: &Binder{ledger: reservations, class: classifier{}, handle: h}}
}

// handle is what the plugin needs of the framework.
type handle struct {
	fwk.Handle
	activated []string
	nodes     []*corev1.Node
}

func (h *handle) SnapshotSharedLister() fwk.SharedLister { return cache.NewSnapshot(nil, h.nodes) }

func (*handle) ProfileName() string { return "ours" }

func (h *handle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for _, p := range pods {
		h.activated = append(h.activated, p.Namespace+"/"+p.Name)
	}
}

func refOf(p *corev1.Pod) capacity.PodRef {
	return capacity.PodRef{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
}

// submit does what Provision does with a pod that fits nowhere.
func (w *world) submit(p *corev1.Pod) {
	w.Helper()
	w.reservations.Submit(refOf(p), mustClass(w.T, p))
}

func (w *world) refuse(uid types.UID, why string) {
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Refuse([]types.UID{uid}, why, false, now) })
}

// launch plans the pod on a node that is being launched.
func (w *world) launch(claim string, p *corev1.Pod) {
	w.Helper()
	w.submit(p)
	c := mustClass(w.T, p)
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.AddNode(claim, &capacity.Node{}, nil, true, now)
		l.Commit(claim, []capacity.Placement{{Class: c, Pod: refOf(p), Node: claim}}, now)
	})
}

// daemon announces a DaemonSet's pod for a node that is being launched.
func (w *world) daemon(claim, name, cpu string) {
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.AddNode(claim, &capacity.Node{}, map[string]capacity.Resources{
			name: capacity.ResourcesOf(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)})}, true, now)
	})
}

// appear adds the claim's Node to the scheduler's cache.
func (w *world) appear(claim, name string, st ledger.NodeStatus) {
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Named(claim, name, "")
		l.Cached(name, st, now)
	})
}

// place plans the pod on a node that exists.
func (w *world) place(name string, p *corev1.Pod) {
	w.Helper()
	w.submit(p)
	c := mustClass(w.T, p)
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Existing(name, ledger.NodeStatus{})
		l.Commit(name, []capacity.Placement{{Class: c, Pod: refOf(p), Node: name}}, now)
	})
}

// filter runs one pod's PreFilter, and Filter for one node with the given pods on it.
func (w *world) filter(p *corev1.Pod, node string, on ...*corev1.Pod) answer {
	w.Helper()
	state := framework.NewCycleState()
	if _, status := w.PreFilter(w.Context(), state, p, nil); !status.IsSuccess() && !status.IsSkip() {
		w.Fatalf("PreFilter of %s: %v", p.Name, status)
	}
	return answerOf(w.Filter(w.Context(), state, p, nodeInfo(node, on...)))
}

// nodeInfo returns a node with four CPUs and capacity for three pods.
func nodeInfo(name string, on ...*corev1.Pod) fwk.NodeInfo {
	info := framework.NewNodeInfo(on...)
	info.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("3")}}})
	return info
}

// pod returns a pod that requests one CPU and has a controller that would recreate it.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app", UID: "app", Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}, Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}}},
	}
	cpu("1")(p)
	for _, f := range change {
		f(p)
	}
	return p
}

func cpu(amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
}

func priority(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = &n }
}

func hostPort(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: n}} }
}

func label(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}

func namespace(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Namespace = name }
}

// apartFrom gives the pod anti-affinity to pods of the app on the same node.
func apartFrom(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}
	}
}

// over changes the topology key of the pod's anti-affinity.
func over(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = key
	}
}

func nothing(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }
func orphan(p *corev1.Pod)  { p.OwnerReferences = nil }
func daemon(p *corev1.Pod)  { p.OwnerReferences[0].Kind = "DaemonSet" }

// typo makes a pod one that can't be planned for.
func typo(p *corev1.Pod) { p.Annotations = map[string]string{"dovetail.sh/bind": "typo"} }

// contradicting makes a pod one that no node can ever host.
func contradicting(p *corev1.Pod) {
	p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}}}}}}}
}
