package pending

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// coming is a ReplicaSet with pods, and what is known of pods that are about to come.
type coming struct {
	*testing.T
	clock        *testingclock.FakePassiveClock
	reservations *reservations.Ledger
	informers    informers.SharedInformerFactory
	pods         *Pods
	arrivals     *Arrivals
}

func newComing(t *testing.T) *coming {
	c := &coming{T: t, clock: testingclock.NewFakePassiveClock(time.Now()), informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0)}
	c.reservations = reservations.New(c.clock)
	c.pods = New(Config{Schedulers: []string{"s"}}, c.reservations, NewClasses(c.informers))
	c.arrivals = NewArrivals(NewOwners(c.informers), c.pods, c.clock)
	return c
}

func (c *coming) after(d time.Duration) { c.clock.SetTime(c.clock.Now().Add(d)) }

func (c *coming) want(expected bool) {
	c.Helper()
	if got := c.arrivals.Expected(); got != expected {
		c.Errorf("pods are expected: %t, want %t", got, expected)
	}
}

// wantSettled checks whether a plan may be made after a third of the window, and after all of it.
func (c *coming) wantSettled(early, late bool) {
	c.Helper()
	const window = 300 * time.Millisecond
	for quiet, want := range map[time.Duration]bool{window / 3: early, window: late} {
		if got := c.arrivals.Settled(quiet, window); got != want {
			c.Errorf("settled after %v of quiet: %t, want %t", quiet, got, want)
		}
	}
}

func ofScheduler(name string) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.SchedulerName = name }
}

// replicaSet has the informer's store and handler see a ReplicaSet.
func (c *coming) replicaSet(before, now *appsv1.ReplicaSet, initial bool) {
	c.Helper()
	put(c.T, c.informers, now)
	h := growth(c.arrivals, "apps/v1", "ReplicaSet", func(rs *appsv1.ReplicaSet) (int32, string) {
		return replicas(rs.Spec.Replicas), rs.Spec.Template.Spec.SchedulerName
	})
	if before == nil {
		h.OnAdd(now, initial)
	} else {
		h.OnUpdate(before, now)
	}
}

// tried lets a pod have its first scheduling cycle, in which no node is found.
func (c *coming) tried(pod *corev1.Pod) {
	c.Helper()
	class, err := c.pods.Classes.Class(pod)
	if err != nil {
		c.Fatal(err)
	}
	c.reservations.Submit(capacity.RefOf(pod), class)
}

// A plan that is made now does not know the pods of a ReplicaSet that has none. As soon as one waits, the others are anticipated.
func TestNewControllersAreExpectedToCreatePods(t *testing.T) {
	c := newComing(t)
	c.want(false)
	c.replicaSet(nil, replicaSet(3, ofScheduler("s")), false)
	c.want(true)
	c.after(arrivalPatience / 2)
	c.want(true)
	pod := ownedPod(0, "apps/v1 ReplicaSet")
	c.pods.observe(nil, pod)
	c.want(true) // it hasn't been tried
	c.tried(pod)
	c.want(false)
}

// whileOthersArrive has pods of another controller arrive and be tried, and checks that the answer is yes for so long, and no afterwards.
func (c *coming) whileOthersArrive(name string, answer func() bool, until time.Duration) {
	c.Helper()
	for i := 0; time.Duration(i)*arrivalPatience/4 <= 2*until; i++ {
		c.after(arrivalPatience / 4)
		pod := ownedPod(i, "apps/v1 ReplicaSet")
		pod.OwnerReferences[0].UID = "another"
		c.pods.observe(nil, pod)
		c.tried(pod)
		if at := time.Duration(i+1) * arrivalPatience / 4; answer() != (at <= until) {
			c.Fatalf("after %v %s is %t, want %t", at, name, answer(), at <= until)
		}
	}
}

// Controllers are served a few at a time: while pods of some arrive, those of others are still to come, but not for ever.
func TestControllersThatWaitForTheirTurn(t *testing.T) {
	c := newComing(t)
	c.replicaSet(nil, replicaSet(3, ofScheduler("s"), func(rs *appsv1.ReplicaSet) { rs.Name = "late" }), false)
	c.whileOthersArrive("Expected", c.arrivals.Expected, admittedWindow)
	c.replicaSet(nil, replicaSet(3, ofScheduler("s")), false)
	c.want(true)
	c.after(arrivalPatience + 1)
	c.want(false)
}

// After a pod that comes alone a plan is made soon. Where another came shortly before it, a third may follow.
func TestSettled(t *testing.T) {
	c := newComing(t)
	arrive := func(i int) {
		pod := ownedPod(i, "apps/v1 ReplicaSet")
		c.pods.observe(nil, pod)
		c.wantSettled(false, false) // it hasn't been tried
		c.tried(pod)
	}
	c.wantSettled(false, true) // what is planned for without a new pod
	arrive(0)
	c.wantSettled(true, true)
	c.after(arrivalPatience)
	arrive(1)
	c.wantSettled(false, true)
	c.after(arrivalPatience + 1)
	c.wantSettled(false, true) // it is not the pod's arrival that is waited for
	arrive(2)
	c.wantSettled(true, true)
	arrive(3)
	c.wantSettled(false, true)
	c.after(arrivalPatience + 1)
	arrive(4)
	c.replicaSet(nil, replicaSet(3, ofScheduler("s"), func(rs *appsv1.ReplicaSet) { rs.UID = "next" }), false)
	c.wantSettled(false, false)
}

// While pods arrive, those of a controller that waits long for its turn are likely to come, although no plan waits for them any more.
func TestMorePodsOfControllersThatWaitForTheirTurn(t *testing.T) {
	c := newComing(t)
	if c.arrivals.More() {
		t.Error("more pods are likely, of no controller")
	}
	c.replicaSet(nil, replicaSet(3, ofScheduler("s"), func(rs *appsv1.ReplicaSet) { rs.Name = "late" }), false)
	c.whileOthersArrive("More", c.arrivals.More, moreWindow)
	c.replicaSet(nil, replicaSet(3, ofScheduler("s")), false)
	c.wantMore(true)
	pod := ownedPod(1000, "apps/v1 ReplicaSet")
	c.pods.observe(nil, pod)
	c.wantMore(true) // it hasn't been tried
	c.tried(pod)
	c.wantMore(false) // the others are anticipated
}

// As long as the scheduler hasn't come to the newest pod, there are pods that no plan knows. A pod that it doesn't come to, whatever the reason,
// counts only until a newer one has had its cycle, and not for long while the scheduler has nothing to do.
func TestMorePodsInTheQueue(t *testing.T) {
	c := newComing(t)
	first, second := ownedPod(0, "apps/v1 ReplicaSet"), ownedPod(1, "apps/v1 ReplicaSet")
	c.pods.observe(nil, first)
	c.after(arrivalPatience)
	c.wantMore(true)
	c.after(1)
	c.wantMore(false) // a plugin keeps it out of the queue
	c.pods.Asked()
	c.wantMore(true)
	c.after(admittedWindow - arrivalPatience - 2)
	c.wantMore(false)
	c.pods.Asked()
	c.wantMore(true)
	c.after(1)
	c.wantMore(false)
	c.pods.observe(nil, second)
	c.wantMore(true)
	c.tried(second)
	c.wantMore(false)
}

func (c *coming) wantMore(want bool) {
	c.Helper()
	if got := c.arrivals.More(); got != want {
		c.Errorf("more pods are likely: %t, want %t", got, want)
	}
}

// A controller whose pods are rejected says nothing about pods that come later, after a time in which none came.
func TestControllersWithoutPodsAreForgottenInAGap(t *testing.T) {
	c := newComing(t)
	c.replicaSet(nil, replicaSet(3, ofScheduler("s"), func(rs *appsv1.ReplicaSet) { rs.Name = "rejected" }), false)
	c.wantMore(true)
	c.after(30 * arrivalPatience) // nobody asks meanwhile
	pod := ownedPod(0, "apps/v1 ReplicaSet")
	pod.OwnerReferences[0].UID = "another"
	c.pods.observe(nil, pod)
	c.tried(pod)
	c.wantMore(false)
	c.want(false)
}

// deployment has the handler see a Deployment.
func (c *coming) deployment(before, now *appsv1.Deployment) {
	c.Helper()
	h := growth(c.arrivals, "apps/v1", "Deployment", deploymentWants)
	if before == nil {
		h.OnAdd(now, false)
	} else {
		h.OnUpdate(before, now)
	}
}

func deploymentOf(replicas int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", UID: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
	d.Spec.Template.Spec.SchedulerName = "s"
	return d
}

func ofDeployment(rs *appsv1.ReplicaSet) {
	rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", Controller: ptr.To(true)}}
}

// Pods of a Deployment are expected before its ReplicaSet is there, and from then on of the ReplicaSet, in whichever order they are seen.
func TestDeploymentsWithoutReplicaSetsAreExpectedToCreatePods(t *testing.T) {
	created := func(c *coming) {
		c.Helper()
		c.want(true)
		pod := ownedPod(0, "apps/v1 ReplicaSet")
		c.pods.observe(nil, pod)
		c.tried(pod)
		c.want(false)
	}
	for _, tc := range []struct {
		name string
		do   func(c *coming)
	}{
		{"a new one", func(c *coming) {
			c.deployment(nil, deploymentOf(3))
			c.want(true)
			c.replicaSet(nil, replicaSet(3, ofScheduler("s"), ofDeployment), false)
			created(c)
		}},
		{"one whose ReplicaSet is seen first", func(c *coming) {
			c.replicaSet(nil, replicaSet(3, ofScheduler("s"), ofDeployment), false)
			c.deployment(nil, deploymentOf(3))
			created(c)
		}},
		{"one that is scaled up", func(c *coming) {
			c.deployment(deploymentOf(1), deploymentOf(3))
			c.want(true)
			c.replicaSet(replicaSet(1, ofScheduler("s"), ofDeployment), replicaSet(3, ofScheduler("s"), ofDeployment), false)
			c.want(true)
			other := ownedPod(1, "apps/v1 ReplicaSet")
			c.pods.observe(nil, other)
			c.tried(other)
			created(c)
		}},
		{"one that is scaled up after its ReplicaSet had time", func(c *coming) {
			c.replicaSet(nil, replicaSet(0, ofScheduler("s"), ofDeployment), false)
			c.after(arrivalPatience + 1)
			c.deployment(deploymentOf(1), deploymentOf(3))
			c.want(true)
			c.after(arrivalPatience + 1)
			c.want(false)
		}},
		{"a paused one", func(c *coming) {
			d := deploymentOf(3)
			d.Spec.Paused = true
			c.deployment(nil, d)
			c.want(false)
		}},
		{"one of another scheduler", func(c *coming) {
			d := deploymentOf(3)
			d.Spec.Template.Spec.SchedulerName = "other"
			c.deployment(nil, d)
			c.want(false)
		}},
		{"one whose namespace has a quota", func(c *coming) {
			put(c.T, c.informers, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "q"}})
			c.deployment(nil, deploymentOf(3))
			c.want(false)
		}},
		{"one that is not served", func(c *coming) {
			c.deployment(nil, deploymentOf(3))
			c.after(arrivalPatience + 1)
			c.want(false)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.do(newComing(t)) })
	}
}

func TestScaledUpControllersAreExpectedToCreatePods(t *testing.T) {
	c := newComing(t)
	old := ownedPod(0, "apps/v1 ReplicaSet")
	old.Spec.NodeName = "n"
	c.pods.observe(nil, old)
	c.replicaSet(nil, replicaSet(1, ofScheduler("s")), true)
	c.want(false)
	c.replicaSet(replicaSet(1, ofScheduler("s")), replicaSet(5, ofScheduler("s")), false)
	c.want(true)
	pod := ownedPod(1, "apps/v1 ReplicaSet")
	c.pods.observe(nil, pod)
	c.tried(pod)
	c.want(false)
}

// Nothing is expected of controllers that create no pods for us, and of none for long.
func TestWhatIsNotExpected(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(c *coming)
	}{
		{"pods of another scheduler", func(c *coming) { c.replicaSet(nil, replicaSet(3, ofScheduler("other")), false) }},
		{"a ReplicaSet of an old revision", func(c *coming) { c.replicaSet(nil, replicaSet(0, ofScheduler("s")), false) }},
		{"one that was there when this process started", func(c *coming) { c.replicaSet(nil, replicaSet(3, ofScheduler("s")), true) }},
		{"one that is scaled down", func(c *coming) {
			c.replicaSet(replicaSet(5, ofScheduler("s")), replicaSet(3, ofScheduler("s")), false)
		}},
		{"one whose status has changed", func(c *coming) {
			c.replicaSet(replicaSet(3, ofScheduler("s")), replicaSet(3, ofScheduler("s")), false)
		}},
		{"one whose namespace has a quota", func(c *coming) {
			put(c.T, c.informers, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "q"}})
			c.replicaSet(nil, replicaSet(3, ofScheduler("s")), false)
		}},
		{"one whose pods are all there", func(c *coming) {
			c.replicaSet(nil, replicaSet(1, ofScheduler("s")), false)
			bound := ownedPod(0, "apps/v1 ReplicaSet")
			bound.Spec.NodeName = "n"
			c.pods.observe(nil, bound)
		}},
		{"one that has shown no progress", func(c *coming) {
			c.replicaSet(nil, replicaSet(3, ofScheduler("s")), false)
			c.after(arrivalPatience + 1)
		}},
		{"a pod that is not tried for long", func(c *coming) {
			c.pods.observe(nil, ownedPod(0, "apps/v1 ReplicaSet"))
			c.after(arrivalPatience + 1)
		}},
		{"a pod that was deleted before its first cycle", func(c *coming) {
			pod := ownedPod(0, "apps/v1 ReplicaSet")
			c.pods.observe(nil, pod)
			c.pods.deleted(pod)
		}},
		{"a pod of a DaemonSet, whose node exists", func(c *coming) { c.pods.observe(nil, ownedPod(0, "apps/v1 DaemonSet")) }},
		{"a pod that the scheduler has assumed on a node", func(c *coming) {
			pod := ownedPod(0, "apps/v1 ReplicaSet")
			c.pods.observe(nil, pod)
			if err := c.reservations.Assume(pod.UID, "n", false); err != nil {
				c.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newComing(t)
			tc.do(c)
			c.want(false)
		})
	}
}

// Pods that arrive while nobody asks are not remembered for ever.
func TestArrivalsForget(t *testing.T) {
	c := newComing(t)
	for i := range 400 {
		pod := ownedPod(i, "apps/v1 ReplicaSet")
		c.pods.observe(nil, pod)
		c.replicaSet(nil, replicaSet(3, ofScheduler("s"), func(rs *appsv1.ReplicaSet) { rs.UID = pod.UID }), false)
		c.after(arrivalPatience / 4)
	}
	if n, m := len(c.pods.newcomers.pods), len(c.arrivals.controllers); n > 5 || m > 4*int(moreWindow/arrivalPatience)+1 {
		t.Errorf("remembers %d pods and %d controllers", n, m)
	}
}

func TestWatchedKinds(t *testing.T) {
	c := newComing(t)
	client := fake.NewClientset()
	c.informers = informers.NewSharedInformerFactory(client, 0)
	for _, tc := range []struct {
		name   string
		create func() error
	}{
		{"a StatefulSet", func() error {
			set := statefulSet(3, appsv1.ParallelPodManagement)
			set.Spec.Template.Spec.SchedulerName = "s"
			_, err := client.AppsV1().StatefulSets("d").Create(t.Context(), set, metav1.CreateOptions{})
			return err
		}},
		{"a Job", func() error {
			_, err := client.BatchV1().Jobs("d").Create(t.Context(), job(func(j *batchv1.Job) {
				j.Spec.Template.Spec.SchedulerName, j.Spec.Suspend = "s", ptr.To(false)
			}), metav1.CreateOptions{})
			return err
		}},
		{"a Deployment", func() error {
			_, err := client.AppsV1().Deployments("d").Create(t.Context(), deploymentOf(3), metav1.CreateOptions{})
			return err
		}},
		{"a ReplicaSet", func() error {
			_, err := client.AppsV1().ReplicaSets("d").Create(t.Context(), replicaSet(3, ofScheduler("s")), metav1.CreateOptions{})
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := informers.NewSharedInformerFactory(client, 0)
			a := NewArrivals(NewOwners(f), c.pods, c.clock)
			if err := a.Watch(f); err != nil {
				t.Fatal(err)
			}
			f.Start(t.Context().Done())
			f.WaitForCacheSync(t.Context().Done())
			if err := tc.create(); err != nil {
				t.Fatal(err)
			}
			if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return a.Expected(), nil }); err != nil {
				t.Errorf("no pods are expected of it: %v", err)
			}
		})
	}
}
