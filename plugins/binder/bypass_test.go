package binder

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// Upstream considers some nodes before it uses PreFilter's result, or without using it. These tests run upstream's own code.

// realWorld is a scheduler with Binder among its plugins. It does not run; tests run its cycles.
type realWorld struct {
	*world
	sched *scheduler.Scheduler
	cycle int64
}

// newRealWorld has nodes of four CPUs in its cache, each with one bound pod that requests that much cpu, or "" for none.
func newRealWorld(t *testing.T, nodes map[string]string) *realWorld {
	t.Helper()
	r := &realWorld{world: newWorld(t)}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0)))))
	defaults, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	ours := defaults.Profiles[0]
	ours.Plugins.MultiPoint.Enabled = append(ours.Plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: Name})
	for _, c := range ours.PluginConfig {
		if args, ok := c.Args.(*schedulerapi.PodTopologySpreadArgs); ok {
			args.DefaultingType = schedulerapi.ListDefaulting // the default constraints turn batching off
		}
	}
	client := fake.NewClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	factory := scheduler.NewInformerFactory(client, 0)
	r.sched, err = scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster), scheduler.WithProfiles(ours),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{
			Name: New(r.reservations, func(fwk.Handle) Classifier { return classifier{} })}))
	if err != nil {
		t.Fatal(err)
	}
	r.sched.SchedulingQueue = cycles{r.sched.SchedulingQueue, &r.cycle}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	t.Cleanup(func() {
		cancel()
		broadcaster.Shutdown()
		factory.Shutdown()
	})
	for name, used := range nodes {
		r.sched.Cache.AddNode(klog.FromContext(ctx), nodeInfo(name).Node())
		if used != "" {
			r.bind(pod("on-"+name, cpu(used)), name)
		}
	}
	return r
}

// cycles counts the cycles that tests run without the queue: batching needs them to be consecutive.
type cycles struct {
	internalqueue.SchedulingQueue
	n *int64
}

func (c cycles) SchedulingCycle() int64 { return *c.n }

func (r *realWorld) framework() framework.Framework {
	return r.sched.Profiles[corev1.DefaultSchedulerName]
}

func (r *realWorld) bind(p *corev1.Pod, node string) {
	r.Helper()
	p.Spec.NodeName = node
	if err := r.sched.Cache.AddPod(klog.Background(), p); err != nil {
		r.Fatal(err)
	}
}

// choose runs the pod's scheduling cycle up to the choice of a node.
func (r *realWorld) choose(p *corev1.Pod, signature fwk.PodSignature) (node string, err error) {
	r.Helper()
	r.cycle++
	snapshot := r.framework().SnapshotSharedLister().(*internalcache.Snapshot)
	if err := r.sched.Cache.UpdateSnapshot(klog.Background(), snapshot); err != nil {
		r.Fatal(err)
	}
	info, err := framework.NewPodInfo(p)
	if err != nil {
		r.Fatal(err)
	}
	result, err := r.sched.SchedulePod(r.Context(), r.framework(), framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info, PodSignature: signature})
	return result.SuggestedHost, err
}

// A nominated node is checked before PreFilter's result is used.
func TestNominatedNodeNameCannotBypassThePin(t *testing.T) {
	r := newRealWorld(t, map[string]string{"planned": "", "nominated": ""})
	web := pod("web")
	r.place("planned", web)
	web.Status.NominatedNodeName = "nominated"
	if node, err := r.choose(web, nil); err != nil || node != "planned" {
		t.Errorf("the pod goes to %q (error %v), want its planned node", node, err)
	}
	unplanned := pod("stranger")
	unplanned.Status.NominatedNodeName = "nominated"
	if node, err := r.choose(unplanned, nil); err != nil || node != "nominated" {
		t.Errorf("a stranger goes to %q (error %v), want the node it is nominated for", node, err)
	}
}

// The same goes for the next best node of the previous pod, if that had the same signature. Pods are signed when they enter the queue,
// which may be before anything is planned for them.
func TestBatchingHintCannotBypassThePin(t *testing.T) {
	r := newRealWorld(t, map[string]string{"best": "", "second": "500m", "planned": "1"})
	first, web, third := pod("first", cpu("3")), pod("web", cpu("3")), pod("third", cpu("3"))
	signature := r.framework().SignPod(t.Context(), first)
	if signature == nil || string(signature) != string(r.framework().SignPod(t.Context(), web)) {
		t.Fatalf("signature %q: the pods are not batched, so this test would show nothing", signature)
	}
	node, err := r.choose(first, signature)
	if err != nil || node != "best" {
		t.Fatalf("the first pod goes to %q (error %v), want the best node", node, err)
	}
	r.bind(first, node)
	r.place("planned", web)
	if node, err := r.choose(web, signature); err != nil || node != "planned" {
		t.Errorf("the second pod goes to %q (error %v), want its planned node", node, err)
	}
	if node, err := r.choose(third, signature); err != nil || node != "second" {
		t.Errorf("the third pod goes to %q (error %v), want the second best node: the other one is promised", node, err)
	}
}

// A planned node that has left the cache again can't be used: the cycle fails in a way that brings the pod to PostFilter, so that it is
// planned for again.
func TestPinToANodeThatIsNotInTheSnapshot(t *testing.T) {
	r := newRealWorld(t, map[string]string{"other": ""})
	web := pod("web")
	r.place("planned", web)
	node, err := r.choose(web, nil)
	var unfit *framework.FitError
	if !errors.As(err, &unfit) {
		t.Errorf("the pod goes to %q, error %v; want a FitError", node, err)
	}
}

// A pod may be in its cycle when its gate closes. For the framework that must be a rejection, which brings the pod to PostFilter and then
// behind its gate; an error would put it into a back-off that only Activate can end, and log an error.
func TestPodThatSlippedThroughItsGateIsRefusedNotAnAccident(t *testing.T) {
	r := newRealWorld(t, map[string]string{"other": ""})
	for name, p := range map[string]*corev1.Pod{"queued": pod("queued"), "planned": pod("planned")} {
		if name == "queued" {
			r.submit(p)
		} else {
			r.launch("claim", p)
		}
		node, err := r.choose(p, nil)
		var unfit *framework.FitError
		if !errors.As(err, &unfit) {
			t.Errorf("the %s pod goes to %q, error %v; want a FitError", name, node, err)
		}
	}
}
