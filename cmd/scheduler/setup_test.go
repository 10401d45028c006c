package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulerprofile "k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// A profile without our plugins, in a scheduler that has them in another profile, is as careful as plain kube-scheduler: it binds to no
// Node without a kubelet, and takes no capacity that is reserved for others.
func TestProfileWithoutOurPlugins(t *testing.T) {
	booting := bootingNode()
	up := bootingNode()
	up.Name = "up"
	up.Spec.Taints = nil
	up.Labels["karpenter.sh/registered"], up.Labels["karpenter.sh/initialized"] = "true", "true"
	late := up.DeepCopy()
	late.Name = "late"
	late.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}
	late.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	all := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app", UID: "app", Controller: ptr.To(true)}}
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	for _, tc := range []struct {
		name    string
		node    *corev1.Node
		change  func(*corev1.Pod)
		disable bool // the profile has disabled what multiPoint adds to Filter
		planned bool // all of the node's capacity is planned for another pod
		refused fwk.Code
	}{
		{name: "a Node without a kubelet", node: booting, refused: fwk.UnschedulableAndUnresolvable},
		{name: "also in a profile without any filter of its own", node: booting, disable: true, refused: fwk.UnschedulableAndUnresolvable},
		{name: "a pod that tolerates everything goes there, as with kube-scheduler", node: booting, change: all},
		{name: "but not to room that is planned for others", node: booting, change: all, planned: true, refused: fwk.Unschedulable},
		{name: "a Node that is up", node: up},
		{name: "a Node that says Ready and still has the taint", node: late, refused: fwk.UnschedulableAndUnresolvable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0)))))
			defer cancel()
			d := newDovetail()
			sched := d.twoProfiles(ctx, t, tc.disable)
			shown, err := lifecycle.HideEphemeralTaints(nodeclass.Kind.Label())(tc.node)
			if err != nil {
				t.Fatal(err)
			}
			node := shown.(*corev1.Node)
			sched.Cache.AddNode(klog.Background(), node)
			if tc.planned {
				d.planAllOf(t, node)
			}
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bare", UID: "bare"}, Spec: corev1.PodSpec{
				SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}}}}
			if tc.change != nil {
				tc.change(p)
			}
			f := sched.Profiles[corev1.DefaultSchedulerName]
			if err := sched.Cache.UpdateSnapshot(klog.Background(), f.SnapshotSharedLister().(*internalcache.Snapshot)); err != nil {
				t.Fatal(err)
			}
			info, err := framework.NewPodInfo(p)
			if err != nil {
				t.Fatal(err)
			}
			result, err := sched.SchedulePod(ctx, f, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info})
			if tc.refused == fwk.Success {
				if err != nil || result.SuggestedHost != node.Name {
					t.Fatalf("the pod is put on %q (%v), want %s", result.SuggestedHost, err, node.Name)
				}
				return
			}
			fit, ok := err.(*framework.FitError)
			if !ok {
				t.Fatalf("the pod is put on %q (%v), want it refused", result.SuggestedHost, err)
			}
			if got := fit.Diagnosis.NodeToStatus.Get(node.Name); got.Code() != tc.refused || got.Plugin() != binder.InitializingNodesName {
				t.Errorf("refused by %s with %v, want %s with %v", got.Plugin(), got, binder.InitializingNodesName, tc.refused)
			}
		})
	}
}

func TestWithInitializingNodes(t *testing.T) {
	on := func(names ...string) (set schedulerapi.PluginSet) {
		for _, n := range names {
			set.Enabled = append(set.Enabled, schedulerapi.Plugin{Name: n})
		}
		return set
	}
	withOurs := schedulerapi.KubeSchedulerProfile{SchedulerName: "ours", Plugins: &schedulerapi.Plugins{MultiPoint: on("NodeAffinity", binder.Name)}}
	plain := schedulerapi.KubeSchedulerProfile{SchedulerName: "plain", Plugins: &schedulerapi.Plugins{MultiPoint: on("NodeAffinity")}}
	off := withOurs
	off.Plugins = off.Plugins.DeepCopy()
	off.Plugins.Filter.Disabled = []schedulerapi.Plugin{{Name: "*"}}
	already := plain
	already.Plugins = already.Plugins.DeepCopy()
	already.Plugins.MultiPoint = on(binder.InitializingNodesName)
	for _, tc := range []struct {
		name     string
		profiles []schedulerapi.KubeSchedulerProfile
		want     []bool // which of them get it
	}{
		{"beside a profile of ours", []schedulerapi.KubeSchedulerProfile{withOurs, plain}, []bool{false, true}},
		{"a plain kube-scheduler is left alone", []schedulerapi.KubeSchedulerProfile{plain}, []bool{false}},
		{"Binder without its Filter doesn't count", []schedulerapi.KubeSchedulerProfile{withOurs, off}, []bool{false, true}},
		{"not twice", []schedulerapi.KubeSchedulerProfile{withOurs, already}, []bool{false, false}},
		{"a profile without any plugins", []schedulerapi.KubeSchedulerProfile{withOurs, {SchedulerName: "none"}}, []bool{false, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for i, p := range withInitializingNodes(tc.profiles) {
				for point, set := range map[string]schedulerapi.PluginSet{"preFilter": p.Plugins.PreFilter, "filter": p.Plugins.Filter, "reserve": p.Plugins.Reserve, "postBind": p.Plugins.PostBind} {
					if got := named(set.Enabled, binder.InitializingNodesName); got != tc.want[i] {
						t.Errorf("profile %s has it at %s: %t, want %t", p.SchedulerName, point, got, tc.want[i])
					}
				}
			}
		})
	}
}

// A refused pod is tried again when no taint is hidden any more: to the scheduler itself the node's taints have not changed then.
func TestPodsOfOtherProfilesAreTriedAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0)))))
	defer cancel()
	d := newDovetail()
	sched := d.twoProfiles(ctx, t, false)
	var plugin *binder.InitializingNodes
	for _, e := range sched.Profiles[corev1.DefaultSchedulerName].EnqueueExtensions() {
		if p, ok := e.(*binder.InitializingNodes); ok {
			plugin = p
		}
	}
	if plugin == nil {
		t.Fatal("the plugin registers no events")
	}
	hints, err := plugin.EventsToRegister(ctx)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := lifecycle.HideEphemeralTaints(nodeclass.Kind.Label())(bootingNode())
	if err != nil {
		t.Fatal(err)
	}
	registered := bootingNode()
	registered.Spec.Taints = nil
	hint := hints[0].QueueingHintFn
	if got, _ := hint(klog.Background(), &corev1.Pod{}, nil, shown); got != fwk.QueueSkip {
		t.Errorf("a Node with hidden taints: %v, want the pod left alone", got)
	}
	if got, _ := hint(klog.Background(), &corev1.Pod{}, shown, registered); got != fwk.Queue {
		t.Errorf("its hidden taints have gone: %v, want the pod tried again", got)
	}
	for _, e := range framework.NodeSchedulingPropertiesChange(registered, shown.(*corev1.Node)) {
		if e.ActionType&hints[0].Event.ActionType != 0 {
			return
		}
	}
	t.Error("no event that the plugin registers tells that the hidden taints have gone")
}

func bootingNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "booting", Labels: map[string]string{"karpenter.sh/nodepool": "default"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("10")}},
	}
}

// twoProfiles returns upstream's scheduler with the profiles that setup would make of default-scheduler, without our plugins, and one with
// them. bare: default-scheduler has no filters. replace changes the plugins' factories.
func (d *dovetail) twoProfiles(ctx context.Context, t *testing.T, bare bool, replace ...func(frameworkruntime.Registry)) *scheduler.Scheduler {
	t.Helper()
	var profiles []schedulerapi.KubeSchedulerProfile
	for _, name := range []string{corev1.DefaultSchedulerName, "ours"} {
		defaults, err := latest.Default()
		if err != nil {
			t.Fatal(err)
		}
		p := defaults.Profiles[0]
		p.SchedulerName = name
		profiles = append(profiles, p)
	}
	if bare {
		profiles[0].Plugins.Filter.Disabled = []schedulerapi.Plugin{{Name: "*"}}
	}
	ours := &profiles[1]
	ours.Plugins.MultiPoint.Enabled = append(ours.Plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: provision.Name}, schedulerapi.Plugin{Name: binder.Name})
	ours.PluginConfig = append(ours.PluginConfig, schedulerapi.PluginConfig{Name: provision.Name, Args: &runtime.Unknown{
		Raw: []byte(`{"apiVersion": "config.dovetail.sh/v1alpha1", "kind": "ProvisionArgs", "clusterName": "test", "region": "us-west-2"}`)}})
	registry := frameworkruntime.Registry{}
	for _, register := range d.plugins() {
		if err := register(registry); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range replace {
		f(registry)
	}
	client := fake.NewClientset()
	factory := scheduler.NewInformerFactory(client, 0)
	sched, err := scheduler.New(ctx, client, factory, nil, schedulerprofile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})),
		scheduler.WithProfiles(complete(profiles)...), scheduler.WithFrameworkOutOfTreeRegistry(registry))
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return sched
}

// planAllOf plans a pod for all CPUs of the node.
func (d *dovetail) planAllOf(t *testing.T, node *corev1.Node) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "planned", UID: "planned"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: node.Status.Allocatable[corev1.ResourceCPU]}}}}}}
	class, err := capacity.ClassOf(p, capacity.VolumeInfo{})
	if err != nil {
		t.Fatal(err)
	}
	ref := capacity.PodRef{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
	d.reservations.Submit(ref, class)
	d.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.AddNode("claim", &capacity.Node{}, nil, true, now)
		l.Commit("claim", []capacity.Placement{{Class: class, Pod: ref, Node: "claim"}}, now)
		l.Named("claim", node.Name, "")
		l.Cached(node.Name, ledger.NodeStatus{Managed: true}, now)
	})
}

// asked counts how often the ledger is asked whether a pod's gate is closed, by the gate or by a queueing hint.
type asked struct {
	*reservations.Ledger
	times int
}

func (a *asked) Gated(pod *corev1.Pod) (closed, held bool) {
	a.times++
	return a.Ledger.Gated(pod)
}

// Under its lock, the queue asks about each gated pod at each event that the plugin which gates it has registered for.
func TestGatedPodsAreNotAskedAtNewNodes(t *testing.T) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0)))))
	defer cancel()
	d := newDovetail()
	reservations := &asked{Ledger: d.reservations}
	sched := d.twoProfiles(ctx, t, false, func(r frameworkruntime.Registry) {
		r[binder.Name] = binder.New(reservations, func(h fwk.Handle) binder.Classifier { return d.classifier(h) })
		r[binder.GateName] = binder.NewGate(reservations, func(h fwk.Handle) binder.Classifier { return d.classifier(h) }, d.conditions)
	})
	const n = 100
	pods := map[string]*corev1.Pod{}
	var uids []types.UID
	for i := range n {
		name := fmt.Sprint("pod-", i)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{SchedulerName: "ours", Containers: []corev1.Container{{Name: "main"}}}}
		class, err := capacity.ClassOf(p, capacity.VolumeInfo{})
		if err != nil {
			t.Fatal(err)
		}
		d.reservations.Submit(capacity.PodRef{UID: p.UID, Namespace: p.Namespace, Name: p.Name}, class)
		pods[p.Namespace+"/"+name], uids = p, append(uids, p.UID)
		sched.SchedulingQueue.Add(ctx, p)
	}
	if reservations.times != n || len(sched.SchedulingQueue.PodsInActiveQ()) > 0 {
		t.Fatalf("the gate was asked about %d of %d pods, and let %d go", reservations.times, n, len(sched.SchedulingQueue.PodsInActiveQ()))
	}
	node := bootingNode()
	for _, event := range []fwk.ActionType{fwk.Add, fwk.UpdateNodeTaint} {
		sched.SchedulingQueue.MoveAllToActiveOrBackoffQueue(klog.FromContext(ctx), fwk.ClusterEvent{Resource: fwk.Node, ActionType: event}, nil, node, nil)
	}
	if reservations.times != n {
		t.Errorf("asked %d times at a new Node", reservations.times-n)
	}
	d.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Refuse(uids, "no pool allows it", false, now) })
	queue{sched}.Activate(slices.Collect(maps.Values(pods)))
	if got := len(sched.SchedulingQueue.PodsInActiveQ()); got != n {
		t.Errorf("%d of %d pods were let go when their gates opened", got, n)
	}
}

// Every profile with Binder gets its gate, whatever the profile says about that extension point.
func TestWithGate(t *testing.T) {
	on := func(names ...string) (set schedulerapi.PluginSet) {
		for _, n := range names {
			set.Enabled = append(set.Enabled, schedulerapi.Plugin{Name: n})
		}
		return set
	}
	for _, tc := range []struct {
		name    string
		plugins *schedulerapi.Plugins
		want    []string // at preEnqueue
	}{
		{"under multiPoint", &schedulerapi.Plugins{MultiPoint: on(binder.Name)}, []string{binder.GateName}},
		{"at its own points", &schedulerapi.Plugins{Filter: on(binder.Name), PreEnqueue: on("SchedulingGates", binder.Name)}, []string{binder.GateName, "SchedulingGates"}},
		{"a configuration that has it", &schedulerapi.Plugins{MultiPoint: on(binder.Name), PreEnqueue: on(binder.GateName)}, []string{binder.GateName}},
		{"without Binder", &schedulerapi.Plugins{MultiPoint: on("NodeAffinity"), PreEnqueue: on("SchedulingGates")}, []string{"SchedulingGates"}},
		{"without any", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.plugins.DeepCopy()
			var got []string
			if p := withGate([]schedulerapi.KubeSchedulerProfile{{Plugins: tc.plugins}})[0].Plugins; p != nil {
				for _, e := range p.PreEnqueue.Enabled {
					got = append(got, e.Name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("preEnqueue (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.plugins); diff != "" {
				t.Errorf("the configuration was changed (-before +after):\n%s", diff)
			}
		})
	}
}
