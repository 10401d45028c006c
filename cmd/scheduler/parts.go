package main

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"

	"github.com/dovetail-scheduler/dovetail/pkg/buffers"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider/metered"
	"github.com/dovetail-scheduler/dovetail/pkg/daemons"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/store"
	"github.com/dovetail-scheduler/dovetail/pkg/launch"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/apiserver"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/peers"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/podevents"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// parts are the clients and controllers of Dovetail that run beside the scheduler.
type parts struct {
	client   kubernetes.Interface
	pods     listersv1.PodLister
	store    *store.Store
	external *karpenter.ExternalController
	peers    *peers.Peers
	provider cloudprovider.Provider
	groups   *gangs
	pending  *pending.Pods
	spending *spending.Guard
	launch   *launch.Controllers
	events   *podevents.Recorder
	buffers  *buffers.Controller
	requests *provisioningrequest.Controller
	life     *lifecycle.Controller
	ending   *disruption.Controller
	metrics  *metrics
	// synced has a func for each handler that the launcher depends on: it reports whether the handler has seen all objects.
	synced []cache.InformerSynced
}

// adapters builds the clients of the API server and the cloud.
func (d *dovetail) adapters(ctx context.Context, cc *schedulerserverconfig.CompletedConfig, profiles []profile) (*parts, error) {
	client, err := kubernetes.NewForConfig(asOurselves(cc.KubeConfig))
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	server, err := serverVersion(ctx, client)
	if err != nil {
		return nil, err
	}
	recorder := cc.EventBroadcaster.NewRecorder("dovetail")
	p := &parts{client: client, pods: cc.InformerFactory.Core().V1().Pods().Lister(), events: podevents.New(recorder), external: karpenter.NewExternalController(client, d.clock)}
	if p.store, err = store.New(asJSON(cc.KubeConfig), d.cloud.nodeClass, p.sources(cc, profiles[0].args), recorder, d.clock); err != nil {
		return nil, err
	}
	if err := pools(p.store, d.cloud, profiles); err != nil {
		return nil, err
	}
	d.binding(profiles, cc.InformerFactory)
	p.peers = newPeers(client, d.clock, cc, profiles, p.store)
	args := profiles[0].args
	provider, err := d.cloud.provider(ctx, args, cloudprovider.Settings{
		ClusterName: args.ClusterName, ManagedBy: args.Name, Region: args.Region,
		ClusterEndpoint: args.ClusterEndpoint, ClusterCABundle: args.ClusterCABundle, ClusterCIDR: args.ClusterCIDR,
		KubernetesVersion: server, ServerVersion: func(ctx context.Context) (string, error) { return serverVersion(ctx, client) },
		Hold: p.external.Hold, Synced: p.store.Synced, Clock: d.clock,
	})
	if err != nil {
		return nil, err
	}
	p.provider = metered.New(provider, d.cloud.name, d.clock)
	return p, nil
}

// sources returns the settings that the store keeps, and the funcs by which it asks other parts, which don't exist yet when the store is built.
func (p *parts) sources(cc *schedulerserverconfig.CompletedConfig, args *provision.Args) store.Sources {
	return store.Sources{
		Limits: capacity.ResourcesOf(args.Limits),
		Hold:   p.external.Hold, Kube: p.client, GuardNamespace: cc.ComponentConfig.LeaderElection.ResourceNamespace,
		Shared:        func(labels map[string]string) string { return p.peers.Shared(labels) },
		ClusterCA:     func() (ca string, known bool) { return p.provider.ClusterCA() },
		InstanceTypes: func(class string) ([]*capacity.InstanceType, error) { return p.provider.InstanceTypes(class) },
	}
}

// launching builds the controller that launches nodes, with everything that gives it demand and everything that it calls.
func (d *dovetail) launching(ctx context.Context, cc *schedulerserverconfig.CompletedConfig, sched *scheduler.Scheduler, profiles []profile, p *parts) error {
	args := profiles[0].args
	if err := d.knowDevices(profiles, sched); err != nil {
		return err
	}
	world, recheck, err := worlds(ctx, sched, profiles, d.others(), d.classes.Devices())
	if err != nil {
		return err
	}
	if p.groups, err = newGangs(asJSON(cc.KubeConfig), cc.InformerFactory, sched, profiles); err != nil {
		return err
	}
	namespaces, err := mayLaunch(args)
	if err != nil {
		return err
	}
	daemons, err := daemons.New(cc.InformerFactory)
	if err != nil {
		return err
	}
	p.pending = pending.New(pending.Config{Schedulers: names(profiles), Others: provisionFor(profiles), Lister: p.pods, Events: p.events},
		d.reservations, d.classes)
	owners := pending.NewOwners(cc.InformerFactory)
	arrivals := pending.NewArrivals(owners, p.pending, d.clock)
	if err := arrivals.Watch(cc.InformerFactory); err != nil {
		return err
	}
	boundTo := podsOn(cc.InformerFactory.Core().V1().Pods().Informer())
	p.spending = spending.New(
		spending.Config{NewImageNodes: *args.NewImageNodes, Budget: spending.Budget{DollarsPerHour: args.MaxDollarsPerHour, LaunchesPerMinute: args.MaxLaunchesPerMinute}},
		spending.Parts{Clock: d.clock, Records: p.store, Owners: owners, Pending: p.pending, Types: p.provider.InstanceTypes,
			Nodes: spending.Nodes{Taints: taintsOf(cc.InformerFactory.Core().V1().Nodes().Lister()), Pods: boundTo,
				Pool: poolOf(cc.InformerFactory.Core().V1().Nodes().Lister(), d.cloud.nodeClass.Label()), Drained: drained(cc.InformerFactory.Core().V1().Nodes().Lister())}})
	if err := p.spending.Changes.Watch(cc.InformerFactory); err != nil {
		return err
	}
	p.launch = launch.New(launch.Config{
		Cluster: args.ClusterName, BatchIdle: args.BatchIdleDuration.Duration, BatchMax: args.BatchMaxDuration.Duration,
		MaxInFlight: *args.MaxClaimsInFlight, NamespaceSelector: namespaces, Parallel: 64,
		Plan: capacity.Options{IgnorePreferences: args.PreferencePolicy == provision.PreferenceIgnore, RelaxMinValues: args.MinValuesPolicy == provision.MinValuesBestEffort,
			Effort: provisioning.DefaultEffort, NodeSurcharge: args.NodeSurchargeDollarsPerHour, PriceFactor: args.PriceFactors, Commitments: args.Committed()},
	}, launch.Parts{
		Clock: d.clock, Reservations: d.reservations, Cloud: p.provider, NodeClass: d.cloud.nodeClass.Label(), Claims: p.store, World: world, Recheck: recheck, Planner: planner.New(), Rooms: planner.New(),
		Nodes: nodeBuilder{}, Cluster: apiserver.New(p.client, boundTo), Queue: queue{sched}, Events: p.events,
		Pending: p.pending, Owners: owners, Arrivals: arrivals, Spending: p.spending, Gangs: p.groups, Daemons: daemons.List, Hold: p.external.Hold, Judge: judge, Spare: func(pool string) (wanted, known bool) { return p.ending.Spare(pool) }, Taints: lifecycle.Taints, Seed: time.Now().UnixNano(),
	})
	p.groups.changed = p.launch.Triggers.Changed
	daemons.OnChange(p.launch.Triggers.DaemonsChanged)
	p.synced = append(p.synced, daemons.HasSynced)
	p.keepBuffers(d, profiles, daemons.Admit)
	p.answerRequests(d, profiles, daemons.Admit)
	return nil
}

// endings builds the controllers that look after nodes from their registration to their end.
func (d *dovetail) endings(cc *schedulerserverconfig.CompletedConfig, profiles []profile, p *parts) (err error) {
	args := profiles[0].args
	perMinute := brake.New(*args.MaxTerminationsPerMinute)
	p.life, err = lifecycle.New(lifecycle.Config{
		Kube: p.client, Informers: cc.InformerFactory, Claims: p.store.Client(), Live: p.store.Live(), Cloud: p.provider, NodeClass: d.cloud.nodeClass.Label(), Kind: &d.cloud.nodeClass,
		NodeFor: nodeOfClaim(d.cloud.nodeClass.GroupKind()), Registering: p.launch.Nodes.ClaimNamed, Registered: registered(p.provider, &d.cloud.nodeClass), NotRegistered: notJoined(p.provider, p.store),
		ExpectedTaints: p.store.ExpectedTaints, RegistrationTimeout: args.RegistrationTimeout.Duration, Brake: perMinute, Recorder: p.store.Recorder(), Clock: d.clock,
		Hold: p.external.Hold, Close: p.launch.Nodes.Close, StartupTimeout: args.InitializationTimeout.Duration, Awaited: d.reservations.Awaited,
		GivingUp: func(claim, why string, fault *guard.Fault) {
			p.spending.Ending(claim, fault)
			p.launch.Claims.GivingUp(claim, why)
		},
	})
	if err != nil {
		return err
	}
	causes := &endCauses{claim: p.store.Claim, describe: p.provider.Describe, decided: p.spending.Decided}
	cfg := disruption.Config{
		Kube: p.client, Informers: cc.InformerFactory, Claims: p.store.Client(), Live: p.store.Live(), Fence: fence{d.reservations}, Nodes: quietNodes{p.life, p.launch.Chunks, p.launch.Bookings}, Needed: onceBooked(p.launch.Bookings, neededBy(p.launch.Chunks)),
		Replacements: p.launch.Replacements, NodeClass: &d.cloud.nodeClass, Recount: p.launch.Triggers.Recount, Taken: blockOver(p.provider), Health: p.provider, HoldsRepair: p.spending.HoldsRepair, Lost: takenBack(p.provider), Leaving: rebalanceRecommended(p.provider), Ending: disrupting(p.spending, p.store.Claim, causes), CauseKnown: causes.known,
		Brake: perMinute, DryRun: args.DisruptionDryRun, Hold: p.external.Hold, Recorder: p.store.Recorder(), Clock: d.clock,
	}
	consolidates(&cfg, p, profiles, d.classes)
	if p.ending, err = disruption.New(cfg); err != nil {
		return err
	}
	p.launch.Consolidation.OnResult(p.ending.Changed)
	return nil
}

// watch registers handlers with the scheduler's informers, and with its cache for nodes.
func (p *parts) watch(cc *schedulerserverconfig.CompletedConfig, sched *scheduler.Scheduler, nodeClass capacity.NodeClassLabel) error {
	f := cc.InformerFactory
	if err := f.Core().V1().Nodes().Informer().SetTransform(lifecycle.HideEphemeralTaints(nodeClass)); err != nil {
		return fmt.Errorf("hiding the taints of nodes that are still initializing: %w", err)
	}
	simulate.ObserveNodes(sched, func(before, now *corev1.Node) {
		if now == nil {
			p.launch.Nodes.NodeUncached(before)
		} else {
			p.launch.Nodes.NodeChanged(before, now)
		}
	})
	for _, w := range []struct {
		kind     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
		awaited  bool // the launcher waits until the handler has seen all objects
	}{
		{"pods", f.Core().V1().Pods().Informer(), p.pending.Handler(), true},
		{"pods", f.Core().V1().Pods().Informer(), p.spending.Pods(), false},
		{"CSINodes", f.Storage().V1().CSINodes().Informer(), p.launch.Nodes.CSINodes(), true},
		{"CSIStorageCapacities", f.Storage().V1().CSIStorageCapacities().Informer(), p.launch.Nodes.StorageCapacities(), true},
		{"Namespaces", f.Core().V1().Namespaces().Informer(), p.launch.Namespaces.Namespaces(), false},
	} {
		read, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return fmt.Errorf("watching %s: %w", w.kind, err)
		}
		if w.awaited {
			p.synced = append(p.synced, read.HasSynced)
		}
	}
	return p.watchDevices(cc)
}

// connect registers the callbacks by which the parts learn of each other's changes.
func (p *parts) connect(ctx context.Context) {
	p.store.OnClaim(p.claimChanged)
	p.store.OnPool(p.launch.Triggers.Changed)
	p.store.OnGuard(func(o guard.Owner, retry bool) {
		if o.Pool != "" {
			p.spending.Changes.PoolChanged(o.Pool, p.store.ClassOf(o.Pool), retry)
		} else {
			p.spending.Changes.ClassChanged(o.Class, p.store.PoolsOf(o.Class), retry)
		}
	})
	p.store.OnPool(func() { p.provider.OfferDedicated(dedicatedClasses(p.store)) })
	p.provider.UsedBy(func(class string) []*capacity.Pool { return poolsOf(p.store, class) })
	p.peers.OnChange(p.store.SharedChanged)
	p.external.OnChange(p.launch.Ownership.HoldChanged)
	p.external.OnChange(p.provider.HoldChanged)
	p.store.OnNodeClass(func(nc status.Object, gone bool) {
		p.declareDevices(nc, gone)
		if gone {
			p.provider.DeleteNodeClass(nc.GetName())
		} else {
			p.provider.SetNodeClass(nc)
		}
	})
	p.store.OnClassEnd(p.provider.ReleaseClass)
	p.provider.OnChange(p.store.TypesChanged)
	p.provider.OnChange(p.launch.Triggers.Changed)
	p.provider.OnInterruption(p.ending.Interrupted)
	p.provider.OnLearned(func(class, value string) error { return p.store.Note(ctx, class, objects.AnnotationLearned, value) })
	p.provider.OnNodeClass(func(resolved status.Object) {
		if err := p.store.SetNodeClassStatus(ctx, resolved); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not write the status of a node class", "nodeClass", resolved.GetName())
		}
	})
}

// claimChanged is called for each NodeClaim that was added, changed or deleted.
func (p *parts) claimChanged(c *capacity.Claim, gone bool) {
	if ordersDedicated(c) {
		p.provider.OfferDedicated(dedicatedClasses(p.store)) // before the launcher looks for the offerings that the claim can be launched as
	}
	if gone || c.Deleting {
		p.launch.Claims.ClaimGone(c.Name, "its NodeClaim was deleted")
	} else {
		p.launch.Claims.ClaimChanged(c)
	}
	if c.Registered && c.NodeName != "" {
		p.launch.Nodes.ClaimNamed(c.Name, c.NodeName, c.ProviderID)
	}
	p.launch.Nodes.DevicesOfClaim(c, gone)
	p.life.ClaimChanged(c.Name)
	p.ending.Changed()
}
