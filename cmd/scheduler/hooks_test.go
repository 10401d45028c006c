package main

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// The first cycle begins when the last leader's reservations are there, or when they take too long; no later cycle waits.
func TestTheFirstCycleWaitsForReservations(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(ready chan struct{}, c *clocktesting.FakeClock, cancel func())
	}{
		{"they are there", func(ready chan struct{}, _ *clocktesting.FakeClock, _ func()) { close(ready) }},
		{"too long", func(_ chan struct{}, c *clocktesting.FakeClock, _ func()) { c.Step(firstCycleWaits) }},
		{"the process ends", func(_ chan struct{}, _ *clocktesting.FakeClock, cancel func()) { cancel() }},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		c := clocktesting.NewFakeClock(time.Unix(0, 0))
		ready, begun, cycles := make(chan struct{}), 0, make(chan struct{}, 2)
		sched := &scheduler.Scheduler{NextPod: func(klog.Logger) (*framework.QueuedPodInfo, error) {
			cycles <- struct{}{}
			return nil, nil
		}}
		whenLeading(ctx, sched, c, func() { begun++ }, ready)
		ended := make(chan error)
		go func() {
			_, err := sched.NextPod(klog.Background())
			ended <- err
		}()
		for !c.HasWaiters() {
			runtime.Gosched()
		}
		if len(cycles) != 0 || begun != 1 {
			t.Errorf("%s: %d cycles before, begun %d times", tt.name, len(cycles), begun)
		}
		tt.end(ready, c, cancel)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := sched.NextPod(klog.Background()); err != nil || len(cycles) != 2 {
			t.Errorf("%s: %d cycles of 2 (%v)", tt.name, len(cycles), err)
		}
		cancel()
	}
}

// called is a running profile of which only the name is used.
type called struct {
	framework.Framework
	name string
}

func (c called) ProfileName() string { return c.name }

// No plan waits for a pod whose cycle has failed, although a plugin returned an error, so that PostFilter was not called.
func TestPlansDoNotWaitForPodsWhoseCycleHasFailed(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Now())
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	pods := pending.New(pending.Config{Schedulers: []string{"ours"}}, reservations.New(c), pending.NewClasses(f))
	arrivals := pending.NewArrivals(pending.NewOwners(f), pods, c)
	handled := 0
	sched := &scheduler.Scheduler{FailureHandler: func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status, *fwk.NominatingInfo, time.Time) {
		handled++
	}}
	tellOfFailures(sched, []string{"ours"}, pods)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "u"}, Spec: corev1.PodSpec{SchedulerName: "ours"}}
	pods.Handler().OnAdd(pod, false)
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	for i, tc := range []struct {
		profile string
		want    bool
	}{{"other", true}, {"ours", false}} {
		if !arrivals.Expected() || !arrivals.More() {
			t.Error("a pod that has had no cycle is not waited for")
		}
		sched.FailureHandler(t.Context(), called{name: tc.profile}, &framework.QueuedPodInfo{PodInfo: info}, fwk.AsStatus(errors.New("no luck")), nil, c.Now())
		if expected, more := arrivals.Expected(), arrivals.More(); expected != tc.want || more != tc.want || handled != i+1 {
			t.Errorf("after a failure of profile %s: a pod is expected %t and likely %t, want %t; handled %d times", tc.profile, expected, more, tc.want, handled)
		}
	}
}
