package simulate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// TestObserveNodes runs a real scheduler on an observed cache: its event handlers and its scheduling cycles must go through the
// assigned field.
func TestObserveNodes(t *testing.T) {
	said := make(chan string, 100)
	var sched *scheduler.Scheduler
	tell := func(before, now *corev1.Node) {
		// What is reported must be true of the cache at this moment.
		snapshot := internalcache.NewEmptySnapshot()
		if err := sched.Cache.UpdateSnapshot(klog.Background(), snapshot); err != nil {
			t.Errorf("UpdateSnapshot: %v", err)
		}
		name, cached := "", "not cached"
		for _, n := range []*corev1.Node{before, now} {
			if n != nil {
				name = n.Name
			}
		}
		if info, err := snapshot.Get(name); err == nil {
			cached = "cached with color " + info.Node().Labels["color"]
		}
		said <- fmt.Sprintf("%s: %v -> %v, %s", name, before != nil, now != nil, cached)
	}
	c := newCluster(t, []runtime.Object{node("old", "z1").Label("color", "red").Obj()}, func(cfg *clusterConfig) {
		cfg.before = func(s *scheduler.Scheduler) {
			sched = s
			ObserveNodes(s, tell)
		}
	})
	bound := make(chan string, 1)
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		bound <- binding.Name + " on " + binding.Target.Name
		return true, binding, nil
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.sched.Run(c.ctx)
	}()

	expect := func(want string) {
		t.Helper()
		if diff := cmp.Diff(want, <-said); diff != "" {
			t.Errorf("observed (-want +got):\n%s", diff)
		}
	}
	nodes := c.client.CoreV1().Nodes()
	expect("old: false -> true, cached with color red")

	if _, err := nodes.Update(c.ctx, node("old", "z1").Label("color", "blue").Obj(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("old: true -> true, cached with color blue")
	if err := nodes.Delete(c.ctx, "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("old: true -> false, not cached")
	if _, err := nodes.Create(c.ctx, node("new", "z1").Label("color", "green").Obj(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("new: false -> true, cached with color green")

	waiting := pod("waiting", "web").SchedulerName(corev1.DefaultSchedulerName).Obj()
	if _, err := c.client.CoreV1().Pods("default").Create(c.ctx, waiting, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("waiting on new", <-bound); diff != "" {
		t.Errorf("bound (-want +got):\n%s", diff)
	}
	c.cancel()
	<-stopped
}
