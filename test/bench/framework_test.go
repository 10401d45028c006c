package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
	shipping "github.com/dovetail-scheduler/dovetail/test/consolidation/scheduler"
)

// Profiles of the rig.
const (
	withPlugins = "dovetail"
	plain       = "plain"
)

// rig is a real scheduler that does not run, with one profile as shipped and one of upstream's defaults, both on the same cache.
// Benchmarks run its frameworks.
type rig struct {
	testing.TB
	ctx          context.Context
	sched        *scheduler.Scheduler
	reservations *reservations.Ledger
	classes      *pending.Classes
	world        *simulate.World // of upstream's filters
	seq          int
	// The plugins of the first profile.
	binder    *binder.Binder
	provision *provision.Provision
}

func newRig(tb testing.TB) *rig {
	tb.Helper()
	logger := ktesting.NewLogger(tb, ktesting.NewConfig(ktesting.Verbosity(0)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	r := &rig{TB: tb, ctx: ctx, reservations: reservations.New(clock.RealClock{})}
	defaults, err := latest.Default()
	if err != nil {
		tb.Fatal(err)
	}
	shipped, err := shipping.Shipped()
	if err != nil {
		tb.Fatal(err)
	}
	vanilla, ours := defaults.Profiles[0], *shipped
	vanilla.SchedulerName, ours.SchedulerName = plain, withPlugins

	client := fake.NewClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	factory := scheduler.NewInformerFactory(client, 0)
	classes := func(h fwk.Handle) *pending.Classes {
		if r.classes == nil {
			r.classes = pending.NewClasses(h.SharedInformerFactory())
		}
		return r.classes
	}
	r.sched, err = scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster), scheduler.WithProfiles(ours, vanilla),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{
			provision.Name: keep(&r.provision, provision.New(r.reservations, func(h fwk.Handle) provision.Classifier { return classes(h) })),
			binder.Name:    keep(&r.binder, binder.New(r.reservations, func(h fwk.Handle) binder.Classifier { return classes(h) })),
		}))
	if err != nil {
		tb.Fatal(err)
	}
	if r.world, err = simulate.New(ctx, simulate.Config{Scheduler: r.sched, Profile: vanilla}); err != nil {
		tb.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	tb.Cleanup(func() {
		cancel()
		broadcaster.Shutdown()
		factory.Shutdown()
		r.world.Wait()
	})
	return r
}

// keep wraps a factory so that the plugin it creates is also stored.
func keep[P fwk.Plugin](at *P, factory frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		p, err := factory(ctx, args, h)
		if err == nil {
			*at = p.(P)
		}
		return p, err
	}
}

func (r *rig) profile(name string) framework.Framework { return r.sched.Profiles[name] }

// snapshot updates the frameworks' snapshot from the cache, as at the start of every scheduling cycle.
func (r *rig) snapshot() []fwk.NodeInfo {
	r.Helper()
	s := r.profile(withPlugins).SnapshotSharedLister().(*internalcache.Snapshot)
	if err := r.sched.Cache.UpdateSnapshot(klog.FromContext(r.ctx), s); err != nil {
		r.Fatal(err)
	}
	list, err := s.List()
	if err != nil {
		r.Fatal(err)
	}
	return list
}

// addNodes adds n nodes with eight CPUs, over three zones, to the cache, each with this many bound pods that request one CPU.
func (r *rig) addNodes(n, pods int) {
	r.Helper()
	logger := klog.FromContext(r.ctx)
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110")}
		r.sched.Cache.AddNode(logger, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelArchStable: "amd64"}},
			Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
		})
		for j := range pods {
			p := r.pod(fmt.Sprintf("app-%d", (i+j)%50), "1", func(*corev1.Pod) {})
			p.Spec.NodeName = name
			if err := r.sched.Cache.AddPod(logger, p); err != nil {
				r.Fatal(err)
			}
		}
	}
}

// kinds of pods. Each application is a class of its own.
var kinds = []struct {
	name  string
	shape func(*corev1.Pod)
}{
	{"plain", func(*corev1.Pod) {}},
	{"node-affinity", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}}}}}}}
	}},
	{"zone-spread", func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone,
			WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
	}},
	{"host-anti-affinity", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}}}
	}},
}

// tolerations are those that an API server gives pods. With them a pod may be bound before its node is Ready.
var tolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
}

// pod returns a pod of an application; all pods of an application and shape are of one class.
func (r *rig) pod(app, cpu string, shape func(*corev1.Pod)) *corev1.Pod {
	r.seq++
	name := fmt.Sprintf("%s-%d", app, r.seq)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID(app), Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{Tolerations: tolerations, Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("256Mi")}}}}},
	}
	shape(p)
	return p
}

func (r *rig) class(p *corev1.Pod) *capacity.Class {
	r.Helper()
	c, err := r.classes.Class(p)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

func refOf(p *corev1.Pod) capacity.PodRef {
	return capacity.PodRef{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
}

// mixed returns pods of all kinds, of twenty applications each.
func (r *rig) mixed(prefix string, n int) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range n {
		kind := kinds[i%len(kinds)]
		out = append(out, r.pod(fmt.Sprintf("%s-%s-%d", prefix, kind.name, i/len(kinds)%20), "100m", kind.shape))
	}
	return out
}

// plan submits the pods and reserves capacity for them round robin on claims that are being launched, named after prefix.
func (r *rig) plan(prefix string, pods []*corev1.Pod, nodes int) {
	r.Helper()
	for _, p := range pods {
		r.reservations.Submit(refOf(p), r.class(p))
	}
	placements := r.placements(prefix, pods, nodes)
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		for i := range nodes {
			l.AddNode(fmt.Sprintf("%s-%d", prefix, i), &capacity.Node{}, nil, true, now)
		}
		l.Commit(prefix, placements, now)
	})
}

func (r *rig) placements(prefix string, pods []*corev1.Pod, nodes int) []capacity.Placement {
	var out []capacity.Placement
	for i, p := range pods {
		out = append(out, capacity.Placement{Class: r.class(p), Pod: refOf(p), Node: fmt.Sprintf("%s-%d", prefix, i%nodes)})
	}
	return out
}

// gone forgets pods.
func (r *rig) gone(pods []*corev1.Pod) {
	r.reservations.Step(func(l *ledger.Ledger, _ time.Time) {
		for _, p := range pods {
			l.Gone(p.UID)
		}
	})
}
