package pending

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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

func ownerMeta() metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "d", Name: "own", UID: "own"} }

func replicaSet(n int32, change ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: ownerMeta(), Spec: appsv1.ReplicaSetSpec{Replicas: &n}}
	for _, f := range change {
		f(rs)
	}
	return rs
}

func statefulSet(n int32, policy appsv1.PodManagementPolicyType) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: ownerMeta(), Spec: appsv1.StatefulSetSpec{Replicas: &n, PodManagementPolicy: policy}}
}

// withVolumes gives the set's pods a volume each.
func withVolumes(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	return set
}

// claimOf returns the claim of a StatefulSet's pod, bound to the volume unless that is empty.
func claimOf(ordinal int, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprintf("data-own-%d", ordinal)},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
}

func job(change func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: ownerMeta(), Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](10), Completions: ptr.To[int32](10)}}
	change(j)
	return j
}

// The pods that are certain to come while three of them exist: two waiting, one bound.
func TestAhead(t *testing.T) {
	now := metav1.Now()
	for _, tc := range []struct {
		name  string
		kind  string
		owner runtime.Object
		more  []runtime.Object
		held  int
		age   time.Duration
		want  int
	}{
		{name: "a ReplicaSet makes what it lacks", kind: "apps/v1 ReplicaSet", owner: replicaSet(10), want: 7},
		{name: "not what is held for it already", kind: "apps/v1 ReplicaSet", owner: replicaSet(10), held: 5, want: 2},
		{name: "nothing when all are there", kind: "apps/v1 ReplicaSet", owner: replicaSet(3), want: 0},
		{name: "nor when it is being scaled down", kind: "apps/v1 ReplicaSet", owner: replicaSet(1), want: 0},
		{name: "a failing ReplicaSet makes none", kind: "apps/v1 ReplicaSet", owner: replicaSet(10, func(rs *appsv1.ReplicaSet) {
			rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue}}
		}), want: 0},
		{name: "one that has recovered does", kind: "apps/v1 ReplicaSet", owner: replicaSet(10, func(rs *appsv1.ReplicaSet) {
			rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionFalse}}
		}), want: 7},
		{name: "nor one that is being deleted", kind: "apps/v1 ReplicaSet", owner: replicaSet(10, func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp = &now }), want: 0},
		{name: "nor another one of the same name", kind: "apps/v1 ReplicaSet", owner: replicaSet(10, func(rs *appsv1.ReplicaSet) { rs.UID = "other" }), want: 0},
		{name: "a quota may stop it half-way", kind: "apps/v1 ReplicaSet", owner: replicaSet(10),
			more: []runtime.Object{&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "q"}}}, want: 0},
		{name: "one of another namespace does not", kind: "apps/v1 ReplicaSet", owner: replicaSet(10),
			more: []runtime.Object{&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "e", Name: "q"}}}, want: 7},
		{name: "pods of long ago are no sign of more", kind: "apps/v1 ReplicaSet", owner: replicaSet(10), age: admittedWindow + 1, want: 0},
		{name: "a parallel StatefulSet", kind: "apps/v1 StatefulSet", owner: statefulSet(10, appsv1.ParallelPodManagement), want: 7},
		{name: "an ordered one makes them one by one", kind: "apps/v1 StatefulSet", owner: statefulSet(10, appsv1.OrderedReadyPodManagement), want: 0},
		{name: "one that gets new volumes", kind: "apps/v1 StatefulSet", owner: withVolumes(statefulSet(10, appsv1.ParallelPodManagement)),
			more: []runtime.Object{claimOf(4, "")}, want: 7},
		{name: "one whose volumes wait in their zones", kind: "apps/v1 StatefulSet", owner: withVolumes(statefulSet(10, appsv1.ParallelPodManagement)),
			more: []runtime.Object{claimOf(4, "pv-4")}, want: 0},
		{name: "one whose volumes are in use", kind: "apps/v1 StatefulSet", owner: withVolumes(statefulSet(10, appsv1.ParallelPodManagement)),
			more: []runtime.Object{claimOf(4, "pv-4"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "own-4"}, Spec: corev1.PodSpec{NodeName: "n"}}}, want: 7},
		{name: "one with a volume of a pod that it no longer wants", kind: "apps/v1 StatefulSet", owner: withVolumes(statefulSet(10, appsv1.ParallelPodManagement)),
			more: []runtime.Object{claimOf(10, "pv-10")}, want: 7},
		{name: "a Job", kind: "batch/v1 Job", owner: job(func(*batchv1.Job) {}), want: 7},
		{name: "up to its parallelism", kind: "batch/v1 Job", owner: job(func(j *batchv1.Job) { j.Spec.Completions = ptr.To[int32](100) }), want: 7},
		{name: "and what is left to do", kind: "batch/v1 Job", owner: job(func(j *batchv1.Job) { j.Status.Succeeded = 5 }), want: 2},
		{name: "a suspended Job makes none", kind: "batch/v1 Job", owner: job(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }), want: 0},
		{name: "one whose pods fail waits", kind: "batch/v1 Job", owner: job(func(j *batchv1.Job) { j.Status.Failed = 1 }), want: 0},
		{name: "a work queue that is being finished", kind: "batch/v1 Job", owner: job(func(j *batchv1.Job) { j.Spec.Completions, j.Status.Succeeded = nil, 1 }), want: 0},
		{name: "an owner nobody knows", kind: "example.com/v1 Thing", owner: replicaSet(10), want: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := testingclock.NewFakePassiveClock(now.Time)
			f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			owners := NewOwners(f)
			for _, o := range append(tc.more, tc.owner) {
				put(t, f, o)
			}
			reservations := reservations.New(clock)
			p := New(Config{Schedulers: []string{"s"}}, reservations, NewClasses(f))
			var waiting []ledger.Waiting
			for i := range 4 {
				pod := ownedPod(i, tc.kind)
				switch i {
				case 2:
					pod.Spec.NodeName = "n"
				case 3:
					pod.DeletionTimestamp = &now // frees capacity for another pod
				}
				p.observe(nil, pod)
				if i < 2 {
					class, err := p.Classes.Class(pod)
					if err != nil {
						t.Fatal(err)
					}
					waiting = append(waiting, ledger.Waiting{Ref: capacity.RefOf(pod), Class: class})
				}
			}
			got := Anticipated(waiting, p, owners, map[types.UID]int{"own": tc.held}, now.Add(tc.age))
			n := 0
			for _, d := range got {
				if d.Owner != "own" || len(d.Pods) > 0 || d.Class.Key != waiting[1].Class.Key {
					t.Errorf("demand %+v", d)
				}
				n += d.Ahead
			}
			if n != tc.want {
				t.Errorf("%d pods ahead, want %d", n, tc.want)
			}
		})
	}
}

// While pods of a node are being deleted, Pods reports that the node is getting free capacity.
func TestPendingKnowsWhereRoomIsBeingMade(t *testing.T) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	p := New(Config{Schedulers: []string{"s"}}, reservations.New(testingclock.NewFakePassiveClock(time.Now())), NewClasses(f))
	h := p.Handler()
	pod := ownedPod(0, "apps/v1 ReplicaSet")
	pod.Spec.NodeName = "n"
	other := ownedPod(1, "apps/v1 ReplicaSet")
	other.Spec.NodeName = "n"
	now := time.Now()
	until := func(pod *corev1.Pod, grace time.Duration) *corev1.Pod {
		pod = pod.DeepCopy()
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(grace)))
		return pod
	}
	going, forced, slow := until(pod, 30*time.Second), until(pod, time.Second), until(other, time.Minute)
	for i, step := range []struct {
		do   func()
		want time.Duration // the deadline; zero: no pods are ending
	}{
		{func() { h.OnAdd(pod, false); h.OnAdd(other, false) }, 0},
		{func() { h.OnUpdate(pod, going) }, 30 * time.Second},
		{func() { h.OnUpdate(other, slow) }, time.Minute},
		{func() { h.OnDelete(slow) }, 30 * time.Second},
		{func() { h.OnUpdate(going, forced) }, time.Second},
		{func() { h.OnDelete(forced) }, 0},
	} {
		step.do()
		if deadline, ending := p.PodsEnding("n"); ending != (step.want != 0) || ending && !deadline.Equal(now.Add(step.want)) {
			t.Errorf("step %d: ending %t, until %v, want %v", i, ending, deadline.Sub(now), step.want)
		}
	}
}

// Pods count for their controller as long as they live.
func TestPendingCountsCreated(t *testing.T) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	p := New(Config{Schedulers: []string{"s"}}, reservations.New(testingclock.NewFakePassiveClock(time.Now())), NewClasses(f))
	h := p.Handler()
	a, b := ownedPod(0, "apps/v1 ReplicaSet"), ownedPod(1, "apps/v1 ReplicaSet")
	want := func(n int) {
		t.Helper()
		if got := p.Created("own"); got != n {
			t.Errorf("created %d, want %d", got, n)
		}
	}
	h.OnAdd(a, false)
	h.OnAdd(b, false)
	want(2)
	bound := a.DeepCopy()
	bound.Spec.NodeName = "n"
	h.OnUpdate(a, bound)
	want(2)
	going := b.DeepCopy()
	going.DeletionTimestamp = ptr.To(metav1.Now())
	h.OnUpdate(b, going)
	want(1)
	h.OnDelete(going)
	want(1)
	h.OnDelete(bound)
	want(0)
	if len(p.owned)+len(p.ending) != 0 {
		t.Errorf("remembers %v and %v", p.owned, p.ending)
	}
}

// The scheduler sees pods through a handler of its own. A pod whose gate opened before Pods knew it is activated again.
func TestPodThatWasLetGoBeforeItWasKnown(t *testing.T) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	reservations := reservations.New(testingclock.NewFakePassiveClock(time.Now()))
	p := New(Config{Schedulers: []string{"s"}}, reservations, NewClasses(f))
	pod := ownedPod(0, "apps/v1 ReplicaSet")
	class, err := p.Classes.Class(pod)
	if err != nil {
		t.Fatal(err)
	}
	reservations.Submit(capacity.RefOf(pod), class)
	reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Existing("n", ledger.NodeStatus{})
		l.Commit("p", []capacity.Placement{{Class: class, Pod: capacity.RefOf(pod), Node: "n"}}, now)
	})
	if e := reservations.Take(); len(e.Activate) != 1 || p.Get(pod.UID) != nil {
		t.Fatalf("effects %+v", e)
	}
	p.observe(nil, pod)
	if e := reservations.Take(); len(e.Activate) != 1 {
		t.Errorf("effects %+v, want the pod to be let go again", e)
	}
	p.observe(pod, pod)
	if e := reservations.Take(); len(e.Activate) != 0 {
		t.Errorf("effects %+v for a pod that was known", e)
	}
}

func ownedPod(i int, kind string) *corev1.Pod {
	pod := unscheduled(i)
	ref := &pod.OwnerReferences[0]
	ref.Name, ref.UID = "own", "own"
	if _, err := fmt.Sscanf(kind, "%s %s", &ref.APIVersion, &ref.Kind); err != nil {
		panic(err)
	}
	return pod
}

func put(t *testing.T, f informers.SharedInformerFactory, o runtime.Object) {
	t.Helper()
	var err error
	switch o.(type) {
	case *appsv1.ReplicaSet:
		err = f.Apps().V1().ReplicaSets().Informer().GetStore().Add(o)
	case *appsv1.StatefulSet:
		err = f.Apps().V1().StatefulSets().Informer().GetStore().Add(o)
	case *batchv1.Job:
		err = f.Batch().V1().Jobs().Informer().GetStore().Add(o)
	case *corev1.ResourceQuota:
		err = f.Core().V1().ResourceQuotas().Informer().GetStore().Add(o)
	case *corev1.PersistentVolumeClaim:
		err = f.Core().V1().PersistentVolumeClaims().Informer().GetStore().Add(o)
	case *corev1.Pod:
		err = f.Core().V1().Pods().Informer().GetStore().Add(o)
	default:
		t.Fatalf("no informer for %T", o)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Pods of two Jobs are of one class, whose example is the first Job's. What the second is to create counts as its own.
func TestAnticipatedPodsBelongToTheirOwnJob(t *testing.T) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	owners := NewOwners(f)
	p := New(Config{Schedulers: []string{"s"}}, reservations.New(testingclock.NewFakePassiveClock(time.Now())), NewClasses(f))
	var waiting []ledger.Waiting
	for i, name := range []string{"x", "y"} {
		put(t, f, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name)}, Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](5), Completions: ptr.To[int32](5)}})
		pod := ownedPod(i, "batch/v1 Job")
		pod.OwnerReferences[0].Name, pod.OwnerReferences[0].UID = name, types.UID(name)
		p.observe(nil, pod)
		class, err := p.Classes.Class(pod)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if class.Key != waiting[0].Class.Key {
				t.Fatal("the Jobs' pods are of different classes")
			}
			class = waiting[0].Class // as the ledger has it
		}
		waiting = append(waiting, ledger.Waiting{Ref: capacity.RefOf(pod), Class: class})
	}
	got := Anticipated(waiting, p, owners, nil, time.Now())
	if len(got) != 2 {
		t.Fatalf("%d demands, want 2", len(got))
	}
	for _, d := range got {
		if of := metav1.GetControllerOf(d.Class.Pod); of.UID != d.Owner || d.Ahead != 4 || d.Class.Key != waiting[0].Class.Key {
			t.Errorf("%d pods of %s count as pods of %s", d.Ahead, d.Owner, of.Name)
		}
	}
}
