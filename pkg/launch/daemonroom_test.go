package launch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/daemons"
)

// For a DaemonSet that is added while a node is in flight capacity is reserved there, and released when the DaemonSet is deleted.
func TestRoomForDaemonSetsThatComeLater(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.submit(1)
	w.allBound(1)
	w.exactly(1)
	kept := func(want int64) {
		t.Helper()
		got := int64(-1)
		if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
			w.reservations.Read(func(l ledger.Reader) {
				got = 0
				for _, f := range l.InFlight() {
					for _, d := range f.Daemons {
						got += d[corev1.ResourceCPU]
					}
				}
			})
			return got == want, nil
		}); err != nil {
			t.Errorf("%dm CPU kept for daemons, want %dm", got, want)
		}
	}
	kept(0)
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "logs", Generation: 1}}
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}}
	sets, err := daemons.New(w.informers)
	if err != nil {
		t.Fatal(err)
	}
	sets.ObserveSet(ds)
	set := func(all ...*capacity.DaemonSet) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.daemons = all
	}
	set(sets.List()...)
	w.parts.Triggers.DaemonsChanged(false)
	kept(100)
	set()
	w.parts.Triggers.DaemonsChanged(true)
	kept(0)
}

// crowded is a planner that finds no capacity beside a DaemonSet's pods.
type crowded struct{}

func (crowded) Plan(v *capacity.View, opts capacity.Options) *capacity.Plan {
	if len(v.DaemonSets) == 0 {
		return plain{}.Plan(v, opts)
	}
	out := &capacity.Plan{}
	for _, d := range v.Demand {
		out.Refused = append(out.Refused, capacity.Refusal{Class: d.Class, Pods: d.Pods, Message: "no room beside the DaemonSet's pod"})
	}
	return out
}

// Pods that were refused because a DaemonSet's pods leave them too little capacity are planned for again when these request less.
func TestDaemonsThatShrinkGivePodsAnotherChance(t *testing.T) {
	w := newWorld(t)
	w.daemons = []*capacity.DaemonSet{{Namespace: "d", Name: "logs"}}
	w.build()
	w.planner = crowded{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		w.launcher.Run(ctx)
		close(done)
	}()
	defer func() {
		cancel()
		<-done
	}()
	w.submit(1)
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 20*time.Second, true, func(context.Context) (refused bool, _ error) {
		w.reservations.Read(func(l ledger.Reader) { refused = l.Refused(w.pod(0).UID) })
		return refused, nil
	}); err != nil {
		t.Fatal("the pod was not refused")
	}
	w.mu.Lock()
	w.daemons = nil
	w.mu.Unlock()
	w.parts.Triggers.DaemonsChanged(true)
	w.allBound(1)
	w.exactly(1)
}

// End to end: the informer reports that a DaemonSet was deleted, and a pod that was refused permanently because of it gets its node.
func TestDaemonsThatGoGivePodsAnotherChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.planner = crowded{}
		w.build()
		client := fake.NewClientset(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "agent", UID: "agent", Generation: 1}})
		f := informers.NewSharedInformerFactory(client, 0)
		sets, err := daemons.New(f)
		if err != nil {
			t.Fatal(err)
		}
		sets.OnChange(func(frees bool) {
			w.mu.Lock()
			w.daemons = sets.List()
			w.mu.Unlock()
			w.parts.Triggers.DaemonsChanged(frees)
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer f.Shutdown()
		done := make(chan struct{})
		go func() {
			w.launcher.Run(ctx)
			close(done)
		}()
		defer func() {
			cancel()
			<-done
		}()
		f.Start(ctx.Done())
		cache.WaitForCacheSync(ctx.Done(), sets.HasSynced)
		w.submit(1)
		pass(10 * time.Minute)
		if _, instances, bound := w.count(); instances+bound > 0 || !w.reservations.Refused(w.pod(0).UID) {
			t.Fatalf("%d instances and %d pods bound beside the DaemonSet", instances, bound)
		}
		if err := client.AppsV1().DaemonSets("d").Delete(ctx, "agent", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if _, instances, bound := w.count(); instances != 1 || bound != 1 {
			t.Errorf("%d instances and %d pods bound seconds after the DaemonSet has gone, want one of each", instances, bound)
		}
	})
}
