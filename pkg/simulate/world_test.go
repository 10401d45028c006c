package simulate

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/devices"
)

// cluster is a real scheduler on a fake API, not running, with a World beside it.
type cluster struct {
	testing.TB
	ctx    context.Context
	cancel context.CancelFunc
	client *fake.Clientset
	sched  *scheduler.Scheduler
	world  *World
}

type clusterOption func(*clusterConfig)

type clusterConfig struct {
	profile  schedulerapi.KubeSchedulerProfile
	registry frameworkruntime.Registry
	deny     []string
	also     []Also
	before   func(*scheduler.Scheduler)
	devices  func(fwk.SharedDRAManager) *devices.Source
}

// newCluster starts the scheduler's informers on the objects and waits until its cache has them.
func newCluster(tb testing.TB, objects []runtime.Object, options ...clusterOption) *cluster {
	tb.Helper()
	logger := ktesting.NewLogger(tb, ktesting.NewConfig(ktesting.Verbosity(0)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	defaults, err := latest.Default()
	if err != nil {
		tb.Fatalf("default configuration: %v", err)
	}
	cfg := clusterConfig{profile: defaults.Profiles[0]}
	for _, o := range options {
		o(&cfg)
	}
	profiles := []schedulerapi.KubeSchedulerProfile{cfg.profile}
	for _, a := range cfg.also {
		profiles = append(profiles, a.Profile)
	}
	client := fake.NewClientset(objects...)
	factory := scheduler.NewInformerFactory(client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(profiles...), scheduler.WithFrameworkOutOfTreeRegistry(cfg.registry))
	if err != nil {
		tb.Fatalf("building the scheduler: %v", err)
	}
	if cfg.before != nil {
		cfg.before(sched)
	}
	var known *devices.Source
	if cfg.devices != nil {
		known = cfg.devices(sched.Profiles[cfg.profile.SchedulerName].SharedDRAManager())
	}
	world, err := New(ctx, Config{Scheduler: sched, Profile: cfg.profile, Registry: cfg.registry, Deny: cfg.deny, Also: cfg.also, Devices: known})
	if err != nil {
		tb.Fatalf("building the world: %v", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		tb.Fatalf("waiting for the scheduler's handlers: %v", err)
	}
	tb.Cleanup(func() {
		cancel()
		broadcaster.Shutdown()
		factory.Shutdown()
	})
	c := &cluster{TB: tb, ctx: ctx, cancel: cancel, client: client, sched: sched, world: world}
	c.refresh()
	return c
}

func (c *cluster) refresh() {
	c.Helper()
	if err := c.world.Refresh(c.ctx); err != nil {
		c.Fatalf("Refresh: %v", err)
	}
}

// load puts nodes and bound pods into the scheduler's cache, bypassing the API.
func (c *cluster) load(nodes []*corev1.Node, pods []*corev1.Pod) {
	c.Helper()
	logger := klog.FromContext(c.ctx)
	for _, n := range nodes {
		c.sched.Cache.AddNode(logger, n)
	}
	for _, p := range pods {
		if err := c.sched.Cache.AddPod(logger, p); err != nil {
			c.Fatalf("adding pod %s to the cache: %v", p.Name, err)
		}
	}
	c.refresh()
}

// unload removes what load has added.
func (c *cluster) unload(nodes []*corev1.Node, pods []*corev1.Pod) {
	c.Helper()
	logger := klog.FromContext(c.ctx)
	for _, p := range pods {
		if err := c.sched.Cache.RemovePod(logger, p); err != nil {
			c.Fatalf("removing pod %s from the cache: %v", p.Name, err)
		}
	}
	for _, n := range nodes {
		if err := c.sched.Cache.RemoveNode(logger, n); err != nil {
			c.Fatalf("removing node %s from the cache: %v", n.Name, err)
		}
	}
	c.refresh()
}

// verify returns the rejections as "step plugin: reason".
func (c *cluster) verify(trial capacity.Trial) []string {
	c.Helper()
	rejections, err := c.world.Verify(c.ctx, trial)
	if err != nil {
		c.Fatalf("Verify: %v", err)
	}
	var out []string
	for _, r := range rejections {
		out = append(out, fmt.Sprintf("%d %s: %s", r.Step, r.Plugin, r.Reason))
	}
	return out
}

var room = map[corev1.ResourceName]string{corev1.ResourceCPU: "4", corev1.ResourceMemory: "16Gi", corev1.ResourcePods: "20"}

// node returns an empty 4-CPU node; a zone of "" leaves the label out.
func node(name, zone string) *st.NodeWrapper {
	n := st.MakeNode().Name(name).Label(corev1.LabelHostname, name).Capacity(room)
	if zone != "" {
		n.Label(corev1.LabelTopologyZone, zone)
	}
	return n
}

// pod returns a pod that requests 1 CPU; its app label is also its class.
func pod(name, app string) *st.PodWrapper {
	return podOf(name, app, map[corev1.ResourceName]string{corev1.ResourceCPU: "1"})
}

func podOf(name, app string, requests map[corev1.ResourceName]string) *st.PodWrapper {
	return st.MakePod().Name(name).UID(name).Namespace("default").Label("app", app).Req(requests)
}

func step(p *corev1.Pod, node string) capacity.Step {
	return capacity.Step{Pod: p, Class: capacity.ClassKey(p.Namespace + "/" + p.Labels["app"]), Node: node}
}

func app(name string) *st.LabelSelectorWrapper { return st.MakeLabelSelector().Label("app", name) }

// TestNewLeavesNoGoroutine: what New starts ends with its context.
func TestNewLeavesNoGoroutine(t *testing.T) {
	newCluster(t, nil, func(cfg *clusterConfig) {
		cfg.before = func(s *scheduler.Scheduler) {
			existing := goleak.IgnoreCurrent()
			ctx, cancel := context.WithCancel(context.Background())
			w, err := New(ctx, Config{Scheduler: s, Profile: cfg.profile, Parallelism: 2})
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			cancel()
			w.Wait()
			if err := goleak.Find(existing); err != nil {
				t.Error(err)
			}
		}
	})
}
