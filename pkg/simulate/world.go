package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/dovetail-scheduler/dovetail/pkg/devices"
	"github.com/dovetail-scheduler/dovetail/pkg/storage"
)

// nameSuffix is appended to the profile's name, so that the simulation's framework metrics, which are labelled with it, are separate.
const nameSuffix = "-sim"

// Config names the profile to simulate.
type Config struct {
	// Scheduler is the running scheduler, whose informers, managers and cache are shared.
	Scheduler *scheduler.Scheduler
	// Profile is the simulated profile with its plugins' arguments, defaulted, as in the component config. Which plugins filter is
	// read from the scheduler itself.
	Profile schedulerapi.KubeSchedulerProfile
	// Registry holds the out-of-tree factories. Those of filtering plugins run once more for each World.
	Registry frameworkruntime.Registry
	// Deny are plugins to leave out: Dovetail's own, those whose factory must not run twice, and those that decide by more than the
	// cluster's state (Coscheduling).
	Deny []string
	// Also are further profiles: the pods of each are checked by its own filters, pods of any other profile by Profile's.
	Also []Also
	// Devices knows the devices of nodes that don't exist yet; nil: none are known.
	Devices *devices.Source
	// Parallelism is how many goroutines PreFilter may use; 0: the framework's default.
	Parallelism int
}

// Also is a further profile; its fields are those of Config.
type Also struct {
	Profile schedulerapi.KubeSchedulerProfile
	Deny    []string
}

// World runs the profiles' filters on a snapshot of the scheduler's cache. It is not safe for concurrent use: each planning goroutine
// needs one of its own.
type World struct {
	scheduler *scheduler.Scheduler
	first     *filters
	others    map[string]*filters // by scheduler name
	lister    *switchingLister
	snapshot  *internalcache.Snapshot
	// list are the snapshot's nodes, position is each node's index in list, byName are the same nodes sorted by name.
	list     []fwk.NodeInfo
	position map[string]int
	byName   []fwk.NodeInfo

	storage *storage.Capacities
	devices *supposedDevices // nil: the setting is off
	// trying is the hypothetical node that the filters are being asked about; nil: none, or an existing node.
	trying *corev1.Node

	namespaces corelisters.NamespaceLister
	volumes    volumeCounter
	nodes      map[string]nodeEntry
}

// filters are one profile's PreFilter and Filter plugins.
type filters struct {
	framework framework.Framework
	// extended are the PreFilter plugins whose state AddPod keeps up to date. recalled are out-of-tree ones whose state may depend on
	// pods and can't be kept up to date, or that decide in PreFilter by what they have counted: because of them every placement makes
	// all class states void.
	extended, recalled sets.Set[string]
	counting           []fwk.ReservePlugin // out-of-tree plugins that filter and have a Reserve (function counting)
	devices            allocating          // nil: the profile has no such plugin
	allNodes           bool                // PreFilter is to see all nodes: a plugin isn't kube-scheduler's own, or the profile has default spread constraints
	// pods is what the counting plugins' informers know.
	pods corelisters.PodLister
}

// New builds the frameworks. It must be called after the scheduler was built and before its informers start, because plugins register
// informers and handlers. Its goroutines (framework metrics, one per profile) end with ctx.
func New(ctx context.Context, cfg Config) (*World, error) {
	if cfg.Scheduler == nil {
		return nil, errors.New("simulating a profile: no scheduler given")
	}
	w := &World{
		scheduler: cfg.Scheduler,
		others:    map[string]*filters{},
		snapshot:  internalcache.NewEmptySnapshot(),
		nodes:     map[string]nodeEntry{},
	}
	w.lister = &switchingLister{SharedLister: w.snapshot}
	running, ok := cfg.Scheduler.Profiles[cfg.Profile.SchedulerName]
	if !ok {
		return nil, fmt.Errorf("simulating profile %q: the scheduler has no such profile", cfg.Profile.SchedulerName)
	}
	w.storage = storage.New(running.SharedInformerFactory())
	if cfg.Devices != nil {
		w.devices = &supposedDevices{SharedDRAManager: running.SharedDRAManager(), source: cfg.Devices}
	}
	var err error
	if w.first, err = w.filters(ctx, cfg, Also{cfg.Profile, cfg.Deny}); err != nil {
		return nil, err
	}
	for _, also := range cfg.Also {
		if w.others[also.Profile.SchedulerName], err = w.filters(ctx, cfg, also); err != nil {
			return nil, err
		}
	}
	factory := running.SharedInformerFactory()
	w.namespaces, w.volumes = factory.Core().V1().Namespaces().Lister(), newVolumeCounter(factory)
	return w, nil
}

// filters builds one profile's filters.
func (w *World) filters(ctx context.Context, cfg Config, of Also) (*filters, error) {
	name := of.Profile.SchedulerName
	running, ok := cfg.Scheduler.Profiles[name]
	if !ok {
		return nil, fmt.Errorf("simulating profile %q: the scheduler has no such profile", name)
	}
	registry := frameworkplugins.NewInTreeRegistry()
	inTree := sets.KeySet(registry)
	if err := registry.Merge(cfg.Registry); err != nil {
		return nil, fmt.Errorf("simulating profile %q: %w", name, err)
	}
	built := map[string]fwk.Plugin{}
	profile := filterProfile(running, of)
	options := []frameworkruntime.Option{
		frameworkruntime.WithClientSet(running.ClientSet()),
		frameworkruntime.WithKubeConfig(running.KubeConfig()),
		frameworkruntime.WithInformerFactory(supposing{running.SharedInformerFactory(), w}),
		frameworkruntime.WithSharedDRAManager(w.draManager(running)),
		frameworkruntime.WithSharedCSIManager(running.SharedCSIManager()),
		frameworkruntime.WithPodGroupManager(running.PodGroupManager()),
		frameworkruntime.WithEventRecorder(running.EventRecorder()),
		frameworkruntime.WithSnapshotSharedLister(w.lister),
		frameworkruntime.WithPodNominator(readOnlyNominator{cfg.Scheduler.SchedulingQueue}),
		frameworkruntime.WithPodActivator(noActivator{}),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	}
	if cfg.Parallelism > 0 {
		options = append(options, frameworkruntime.WithParallelism(cfg.Parallelism))
	}
	f, err := frameworkruntime.NewFramework(ctx, recording(registry, built), profile, options...)
	if err != nil {
		return nil, fmt.Errorf("simulating profile %q: %w", name, err)
	}
	out := &filters{framework: f, extended: sets.New[string](), recalled: sets.New[string]()}
	out.devices, _ = built[names.DynamicResources].(allocating)
	out.counting = counting(enabledNames(running.ListPlugins().Reserve), built, inTree.Has)
	for _, p := range out.counting {
		out.recalled.Insert(p.Name())
	}
	out.pods = running.SharedInformerFactory().Core().V1().Pods().Lister()
	for _, p := range slices.Concat(profile.Plugins.PreFilter.Enabled, profile.Plugins.Filter.Enabled) {
		out.allNodes = out.allNodes || !inTree.Has(p.Name)
	}
	for _, p := range profile.Plugins.PreFilter.Enabled {
		switch {
		case built[p.Name].(fwk.PreFilterPlugin).PreFilterExtensions() != nil:
			out.extended.Insert(p.Name)
		case !inTree.Has(p.Name):
			out.recalled.Insert(p.Name)
		}
	}
	return out, nil
}

// draManager returns what the simulation's DynamicResources plugin reads.
func (w *World) draManager(running framework.Framework) fwk.SharedDRAManager {
	if w.devices == nil {
		return running.SharedDRAManager()
	}
	return w.devices
}

func enabledNames(set schedulerapi.PluginSet) []string {
	out := make([]string, 0, len(set.Enabled))
	for _, p := range set.Enabled {
		out = append(out, p.Name)
	}
	return out
}

// of returns the filters that check the pod.
func (w *World) of(pod *corev1.Pod) *filters {
	if f, ok := w.others[pod.Spec.SchedulerName]; ok {
		return f
	}
	return w.first
}

// Wait blocks until the World's goroutines have ended, up to a second after New's ctx.
func (w *World) Wait() {
	frameworkruntime.WaitForShutdown(w.first.framework)
	for _, f := range w.others {
		frameworkruntime.WaitForShutdown(f.framework)
	}
}

// filterProfile returns the profile reduced to its filters. NewFramework requires a queue sort and a bind plugin; neither is ever
// called.
func filterProfile(running framework.Framework, of Also) *schedulerapi.KubeSchedulerProfile {
	allowed := func(set schedulerapi.PluginSet) schedulerapi.PluginSet {
		return schedulerapi.PluginSet{Enabled: slices.DeleteFunc(slices.Clone(set.Enabled), func(p schedulerapi.Plugin) bool {
			return slices.Contains(of.Deny, p.Name)
		})}
	}
	plugins := running.ListPlugins()
	return &schedulerapi.KubeSchedulerProfile{
		SchedulerName: of.Profile.SchedulerName + nameSuffix,
		PluginConfig:  of.Profile.PluginConfig,
		Plugins: &schedulerapi.Plugins{
			PreFilter: allowed(plugins.PreFilter),
			Filter:    allowed(plugins.Filter),
			QueueSort: schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: names.PrioritySort}}},
			Bind:      schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: names.DefaultBinder}}},
		},
	}
}

// recording wraps the factories so that the plugins they create are also stored in built.
func recording(registry frameworkruntime.Registry, built map[string]fwk.Plugin) frameworkruntime.Registry {
	out := make(frameworkruntime.Registry, len(registry))
	for name, factory := range registry {
		out[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := factory(ctx, args, h)
			if err == nil {
				built[name] = p
			}
			return p, err
		}
	}
	return out
}

// Refresh updates the snapshot from the scheduler's cache, including assumed pods. Its cost grows with the number of changes.
func (w *World) Refresh(ctx context.Context) error {
	if err := w.scheduler.Cache.UpdateSnapshot(klog.FromContext(ctx), w.snapshot); err != nil {
		return fmt.Errorf("taking a snapshot of the scheduler's cache: %w", err)
	}
	list, err := w.snapshot.List()
	if err != nil {
		return fmt.Errorf("listing the snapshot's nodes: %w", err)
	}
	// UpdateSnapshot creates a new list when nodes are added or removed, and changes the listed NodeInfos in place otherwise.
	if len(list) == len(w.list) && (len(list) == 0 || &list[0] == &w.list[0]) {
		return nil
	}
	w.list, w.position, w.byName = list, make(map[string]int, len(list)), slices.Clone(list)
	for i, info := range list {
		w.position[info.Node().Name] = i
	}
	slices.SortFunc(w.byName, func(a, b fwk.NodeInfo) int { return strings.Compare(a.Node().Name, b.Node().Name) })
	for name := range w.nodes {
		if !w.Has(name) {
			delete(w.nodes, name)
		}
	}
	return nil
}

// Has reports whether the node was in the scheduler's cache at the last Refresh.
func (w *World) Has(node string) bool {
	_, ok := w.position[node]
	return ok
}

// readOnlyNominator returns the pods that preemption has nominated and ignores changes.
type readOnlyNominator struct{ fwk.PodNominator }

func (readOnlyNominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (readOnlyNominator) DeleteNominatedPodIfExists(*corev1.Pod)                        {}
func (readOnlyNominator) UpdateNominatedPod(klog.Logger, *corev1.Pod, fwk.PodInfo)      {}

type noActivator struct{}

func (noActivator) Activate(klog.Logger, map[string]*corev1.Pod) {}
