package pending

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// indexed gives the pod the labels of an indexed Job's pod.
func indexed(i int, pod *corev1.Pod) {
	pod.Labels = map[string]string{"batch.kubernetes.io/job-name": "own", "batch.kubernetes.io/job-completion-index": fmt.Sprint(i)}
}

// numbered gives the pod the labels of a StatefulSet's pod.
func numbered(i int, pod *corev1.Pod) {
	pod.Labels = map[string]string{"apps.kubernetes.io/pod-index": fmt.Sprint(i), "statefulset.kubernetes.io/pod-name": fmt.Sprint("own-", i)}
}

// larger gives all pods but the first more CPU than that has.
func larger(i int, pod *corev1.Pod) {
	if i > 0 {
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
	}
}

// scratch gives the pod an ephemeral volume of its own, in zone a if it is bound.
func scratch(bound bool) func(*testing.T, informers.SharedInformerFactory, int, *corev1.Pod) {
	return func(t *testing.T, f informers.SharedInformerFactory, _ int, pod *corev1.Pod) {
		class, wait := "class", storagev1.VolumeBindingWaitForFirstConsumer
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: pod.Name + "-scratch"}}
		claim.Spec.StorageClassName = &class
		if pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: *claim.Spec.DeepCopy()}}}}}; bound {
			claim.Spec.VolumeName = "pv"
		}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}}}
		put(t, f, claim)
		add(t, f.Core().V1().PersistentVolumes().Informer().GetStore().Add(pv))
		add(t, f.Storage().V1().StorageClasses().Informer().GetStore().Add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, VolumeBindingMode: &wait}))
	}
}

// Nothing is bought for pods that would not take it: a pod takes only what is reserved for its own class.
func TestPodsOfOneControllerThatAreNotAlike(t *testing.T) {
	labels := func(change func(int, *corev1.Pod)) func(*testing.T, informers.SharedInformerFactory, int, *corev1.Pod) {
		return func(_ *testing.T, _ informers.SharedInformerFactory, i int, pod *corev1.Pod) { change(i, pod) }
	}
	ten := job(func(*batchv1.Job) {})
	for _, tc := range []struct {
		name   string
		kind   string
		owner  runtime.Object
		named  string // a label that the affinity of another pod names
		change func(*testing.T, informers.SharedInformerFactory, int, *corev1.Pod)
		pods   int           // that wait, the first of them
		apart  time.Duration // how long before the others the first has come
		want   int
	}{
		{name: "an indexed Job", kind: "batch/v1 Job", owner: ten, change: labels(indexed), pods: 2, want: 8},
		{name: "one whose pods a selector may tell apart", kind: "batch/v1 Job", owner: ten, named: "batch.kubernetes.io/job-completion-index", change: labels(indexed), pods: 1, want: 0},
		{name: "one whose name is in a selector", kind: "batch/v1 Job", owner: ten, named: "batch.kubernetes.io/job-name", change: labels(indexed), pods: 2, want: 8},
		{name: "a StatefulSet", kind: "apps/v1 StatefulSet", owner: statefulSet(10, appsv1.ParallelPodManagement), change: labels(numbered), pods: 2, want: 8},
		{name: "one whose pods a selector may tell apart by number", kind: "apps/v1 StatefulSet", owner: statefulSet(10, appsv1.ParallelPodManagement),
			named: "apps.kubernetes.io/pod-index", change: labels(numbered), pods: 1, want: 0},
		{name: "one whose pods a selector may tell apart by name", kind: "apps/v1 StatefulSet", owner: statefulSet(10, appsv1.ParallelPodManagement),
			named: "statefulset.kubernetes.io/pod-name", change: labels(numbered), pods: 1, want: 0},
		{name: "pods that a webhook has changed", kind: "apps/v1 ReplicaSet", owner: replicaSet(10), change: labels(larger), pods: 3, want: 0},
		{name: "an old pod of another class says nothing", kind: "apps/v1 ReplicaSet", owner: replicaSet(10), change: labels(larger), pods: 3, apart: admittedWindow + 1, want: 7},
		{name: "pods that are to get a volume each", kind: "batch/v1 Job", owner: ten, change: scratch(false), pods: 2, want: 8},
		{name: "pods whose volumes bind them to zones", kind: "batch/v1 Job", owner: ten, change: scratch(true), pods: 2, want: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := testingclock.NewFakePassiveClock(time.Now())
			f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			owners := NewOwners(f)
			put(t, f, tc.owner)
			p := New(Config{Schedulers: []string{"s"}}, reservations.New(clock), NewClasses(f))
			if tc.named != "" {
				other := unscheduled(100)
				other.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{tc.named: "x"}}}}}}
				p.observe(nil, other)
			}
			var waiting []ledger.Waiting
			for i := range tc.pods {
				pod := ownedPod(i, tc.kind)
				tc.change(t, f, i, pod)
				p.observe(nil, pod)
				waiting = append(waiting, p.waits(t, pod))
				if i == 0 {
					clock.SetTime(clock.Now().Add(tc.apart))
				}
			}
			n := 0
			for _, d := range Anticipated(waiting, p, owners, nil, clock.Now()) {
				n += d.Ahead
			}
			if n != tc.want {
				t.Errorf("%d pods ahead, want %d", n, tc.want)
			}
		})
	}
}

// waits returns the pod as one that waits for a plan.
func (p *Pods) waits(t *testing.T, pod *corev1.Pod) ledger.Waiting {
	t.Helper()
	class, err := p.Classes.Class(pod)
	if err != nil {
		t.Fatal(err)
	}
	return ledger.Waiting{Ref: capacity.RefOf(pod), Class: class}
}

// While a Deployment is rolled out, pods of both of its ReplicaSets may wait. Each ReplicaSet's are alike.
func TestAnticipatedPodsOfARollout(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Now())
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	owners := NewOwners(f)
	p := New(Config{Schedulers: []string{"s"}}, reservations.New(clock), NewClasses(f))
	for _, name := range []string{"old", "new"} {
		put(t, f, replicaSet(5, ofDeployment, func(rs *appsv1.ReplicaSet) { rs.Name, rs.UID = name, types.UID(name) }))
	}
	var waiting []ledger.Waiting
	for i := range 4 {
		name := []string{"old", "new"}[i%2]
		pod := ownedPod(i, "apps/v1 ReplicaSet")
		pod.OwnerReferences[0] = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: ptr.To(true)}
		larger(i%2, pod)
		p.observe(nil, pod)
		waiting = append(waiting, p.waits(t, pod))
	}
	got := Anticipated(waiting, p, owners, nil, clock.Now())
	if len(got) != 2 {
		t.Fatalf("%d demands, want one for each ReplicaSet", len(got))
	}
	for i, d := range got {
		if d.Ahead != 3 || d.Class.Key != waiting[i].Class.Key {
			t.Errorf("%d pods of %s ahead, want 3 of the class of its own pods", d.Ahead, d.Owner)
		}
	}
}
