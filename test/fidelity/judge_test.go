package fidelity

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
)

// judge is a real scheduler on a fake API with the default profile's filters. Its scheduling loop doesn't run.
type judge struct {
	ctx        context.Context
	sched      *scheduler.Scheduler
	world      *simulate.World
	classes    *pending.Classes
	namespaces capacity.NamespaceLabels
}

// newJudge starts a scheduler's informers with the objects that all worlds have in common.
func newJudge(tb testing.TB, objects ...runtime.Object) *judge {
	tb.Helper()
	logger := ktesting.NewLogger(tb, ktesting.NewConfig(ktesting.Verbosity(0)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	defaults, err := latest.Default()
	if err != nil {
		tb.Fatalf("default configuration: %v", err)
	}
	client := fake.NewClientset(objects...)
	factory := scheduler.NewInformerFactory(client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster), scheduler.WithProfiles(defaults.Profiles[0]))
	if err != nil {
		tb.Fatalf("building the scheduler: %v", err)
	}
	world, err := simulate.New(ctx, simulate.Config{Scheduler: sched, Profile: defaults.Profiles[0]})
	if err != nil {
		tb.Fatalf("building the world: %v", err)
	}
	j := &judge{ctx: ctx, sched: sched, world: world, classes: pending.NewClasses(factory)}
	lister := factory.Core().V1().Namespaces().Lister()
	j.namespaces = func(name string) labels.Set {
		ns, err := lister.Get(name)
		if err != nil {
			return nil
		}
		return ns.Labels
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
		world.Wait()
	})
	return j
}

// scene is a world before planning.
type scene struct {
	nodes   []*corev1.Node
	bound   []*corev1.Pod
	pools   []*capacity.Pool
	daemons []*capacity.DaemonSet
	// inFlight are launched nodes that are not registered yet; they are not in the scheduler's cache.
	inFlight []*capacity.Node
	// pending are the pods to plan for; pods of one class follow each other. gangs are by pod UID.
	pending []*corev1.Pod
	gangs   map[types.UID]*capacity.Gang
	opts    capacity.Options
}

// enter puts the scene's nodes and bound pods into the scheduler's cache, bypassing the API; leave removes them again.
func (j *judge) enter(tb testing.TB, s *scene) (leave func()) {
	tb.Helper()
	logger := klog.FromContext(j.ctx)
	for _, n := range s.nodes {
		j.sched.Cache.AddNode(logger, n)
	}
	for _, p := range s.bound {
		if err := j.sched.Cache.AddPod(logger, p); err != nil {
			tb.Fatalf("adding pod %s to the cache: %v", p.Name, err)
		}
	}
	j.refresh(tb)
	return func() {
		for _, p := range s.bound {
			if err := j.sched.Cache.RemovePod(logger, p); err != nil {
				tb.Errorf("removing pod %s from the cache: %v", p.Name, err)
			}
		}
		for _, n := range s.nodes {
			if err := j.sched.Cache.RemoveNode(logger, n); err != nil {
				tb.Errorf("removing node %s from the cache: %v", n.Name, err)
			}
		}
		j.refresh(tb)
	}
}

func (j *judge) refresh(tb testing.TB) {
	tb.Helper()
	if err := j.world.Refresh(j.ctx); err != nil {
		tb.Fatalf("Refresh: %v", err)
	}
}

// look returns the scene as the planning loop sees it, and its pods by UID. Pods that can't be planned for are left out of it.
func (j *judge) look(s *scene) (*provisioning.Scene, map[types.UID]*corev1.Pod) {
	out := &provisioning.Scene{}
	out.Pools, out.DaemonSets, out.Namespaces = s.pools, s.daemons, j.namespaces
	out.Nodes = j.world.Nodes(nil)
	for _, n := range s.inFlight {
		out.Nodes = append(out.Nodes, n)
		out.Hypothetical = append(out.Hypothetical, capacity.TrialNode{Node: objectOf(n)})
	}
	pods := map[types.UID]*corev1.Pod{}
	for _, p := range s.pending {
		c, err := j.classes.Class(p)
		if err != nil {
			continue
		}
		pods[p.UID] = p
		ref := capacity.PodRef{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
		gang := s.gangs[p.UID]
		at := slices.IndexFunc(out.Demand, func(d capacity.Demand) bool { return d.Class.Key == c.Key && d.Gang == gang })
		if at < 0 {
			at = len(out.Demand)
			out.Demand = append(out.Demand, capacity.Demand{Class: c, Gang: gang})
		}
		out.Demand[at].Pods = append(out.Demand[at].Pods, ref)
	}
	slices.SortStableFunc(out.Demand, func(a, b capacity.Demand) int { return int(b.Class.Priority) - int(a.Class.Priority) })
	return out, pods
}

func objectOf(n *capacity.Node) *corev1.Node {
	o := &corev1.Node{}
	o.Name, o.Labels, o.Spec.Taints = n.Name, n.Labels, n.Taints
	o.Status.Allocatable = n.Allocatable.List()
	o.Status.Capacity = o.Status.Allocatable
	return o
}

// trial returns the plan in the form in which the filters check it: every planned node exists from the start, with its DaemonSet pods.
func trial(s *provisioning.Scene, plan *capacity.Plan, pods map[types.UID]*corev1.Pod) capacity.Trial {
	t := capacity.Trial{Promised: s.Promised, Nodes: slices.Clone(s.Hypothetical)}
	for _, n := range plan.Nodes {
		t.Nodes = append(t.Nodes, capacity.TrialNode{Node: karpenter.PlannedNodeObject(n, n.ID), Pods: daemonPods(n.ID, n.Daemons)})
	}
	for _, pl := range plan.Placements {
		t.Steps = append(t.Steps, capacity.Step{Pod: pods[pl.Pod.UID], Class: pl.Class.Key, Node: pl.Node})
	}
	return t
}

func daemonPods(node string, daemons []*capacity.DaemonSet) []*corev1.Pod {
	var out []*corev1.Pod
	for _, d := range daemons {
		pod := d.Class.Pod.DeepCopy()
		pod.Namespace, pod.Name, pod.UID = d.Namespace, d.Name+"-"+node, types.UID(d.Name+"/"+node)
		pod.Spec.NodeName = node
		out = append(out, pod)
	}
	return out
}

// verify returns the placements that the real filters reject, with the reason.
func (j *judge) verify(tb testing.TB, t capacity.Trial) []string {
	tb.Helper()
	rejections, err := j.world.Verify(j.ctx, t)
	if err != nil {
		tb.Fatalf("Verify: %v", err)
	}
	var out []string
	for _, r := range rejections {
		s := t.Steps[r.Step]
		out = append(out, fmt.Sprintf("step %d: %s on %s: %s: %s", r.Step, s.Pod.Name, s.Node, r.Plugin, r.Reason))
	}
	return out
}
