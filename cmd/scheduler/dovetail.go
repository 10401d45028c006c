package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/launch"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
	"github.com/dovetail-scheduler/dovetail/pkg/version"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// dovetail holds what runs beside the scheduler.
type dovetail struct {
	clock        clock.WithTicker
	connect      func(ctx context.Context, region string) (aws.Clients, error)
	publish      func(ctx context.Context, profiles []profile, f liveState) error
	others       func() frameworkruntime.Registry // plugins that are neither ours nor upstream's
	reservations *launch.Reservations
	classes      *launch.Classes // created with the first profile that uses a plugin
	motors       sync.WaitGroup
	start        sync.Once
	// end stops the process; nil: it can't be stopped from here.
	end context.CancelCauseFunc
}

func newDovetail() *dovetail {
	d := &dovetail{clock: clock.RealClock{}, connect: aws.Connect, publish: publish, others: outOfTree}
	d.reservations = launch.NewReservations(d.clock)
	return d
}

// plugins returns the plugins that this binary has besides kube-scheduler's own: ours and those of other projects.
func (d *dovetail) plugins() []app.Option {
	out := []app.Option{
		app.WithPlugin(provision.Name, provision.New(d.reservations, func(h fwk.Handle) provision.Classifier { return d.classifier(h) })),
		app.WithPlugin(binder.Name, binder.New(d.reservations, func(h fwk.Handle) binder.Classifier { return d.classifier(h) })),
		app.WithPlugin(binder.GateName, binder.NewGate(d.reservations)),
		app.WithPlugin(binder.InitializingNodesName,
			binder.NewInitializingNodes(d.reservations, func(h fwk.Handle) binder.Classifier { return d.classifier(h) }, lifecycle.HiddenTaints)),
	}
	for name, factory := range d.others() {
		out = append(out, app.WithPlugin(name, factory))
	}
	return out
}

// classifier returns the Classes that all profiles share, because they share the informers it reads.
func (d *dovetail) classifier(h fwk.Handle) *launch.Classes {
	if d.classes == nil {
		d.classes = launch.NewClasses(h.SharedInformerFactory())
	}
	return d.classes
}

func (d *dovetail) used() bool { return d.classes != nil }

func (d *dovetail) wait() { d.motors.Wait() }

// introduce builds the controllers and connects them to the scheduler. Nothing runs before the informers do, and nothing is written before
// this replica leads.
func (d *dovetail) introduce(ctx context.Context, cc *schedulerserverconfig.CompletedConfig, sched *scheduler.Scheduler) error {
	profiles, err := ourProfiles(&cc.ComponentConfig, sched)
	if err != nil {
		return err
	}
	for _, p := range profiles {
		for _, w := range p.args.Warnings {
			klog.FromContext(ctx).Info("An argument of Provision has an old name", "profile", p.config.SchedulerName, "warning", w)
		}
	}
	if asked := provision.Extenders(cc.ComponentConfig.Extenders); len(asked) > 0 {
		klog.FromContext(ctx).Info("Extenders are not called before nodes are bought: a pod that they refuse everywhere has a node launched in vain; "+
			"namespaceSelector of ProvisionArgs keeps such pods from causing launches", "extenders", asked)
	}
	args := profiles[0].args
	client, err := kubernetes.NewForConfig(asOurselves(cc.KubeConfig))
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	server, err := serverVersion(ctx, client)
	if err != nil {
		return err
	}
	recorder := cc.EventBroadcaster.NewRecorder("dovetail")
	store, err := karpenter.NewStore(asJSON(cc.KubeConfig), recorder, d.clock)
	if err != nil {
		return err
	}
	if err := pools(store, profiles); err != nil {
		return err
	}
	d.binding(profiles, cc.InformerFactory)
	external := karpenter.NewExternalController(client, d.clock)
	store.SetHold(external.Hold)
	provider, err := d.provider(ctx, args, server, external.Hold)
	if err != nil {
		return err
	}
	world, recheck, err := worlds(ctx, sched, profiles, d.others())
	if err != nil {
		return err
	}
	groups, err := newGangs(asJSON(cc.KubeConfig), cc.InformerFactory, sched, profiles)
	if err != nil {
		return err
	}
	namespaces, err := mayLaunch(args)
	if err != nil {
		return err
	}
	daemons, err := launch.NewDaemons(cc.InformerFactory)
	if err != nil {
		return err
	}
	words := launch.NewRecorder(recorder)
	pending := launch.NewPending(names(profiles), d.reservations, d.classes)
	pending.ProvisionFor(provisionFor(profiles))
	pending.CompareWith(cc.InformerFactory.Core().V1().Pods().Lister())
	owners := launch.NewOwners(cc.InformerFactory)
	boundTo := podsOn(cc.InformerFactory.Core().V1().Pods().Informer())
	store.SetGuardMap(client, cc.ComponentConfig.LeaderElection.ResourceNamespace)
	spending := launch.NewSpending(launch.SpendingConfig{NewImageNodes: *args.NewImageNodes,
		Budget: launch.Budget{DollarsPerHour: args.MaxDollarsPerHour, LaunchesPerMinute: args.MaxLaunchesPerMinute}},
		d.clock, store, owners, pending, noExecute(cc.InformerFactory.Core().V1().Nodes().Lister()), boundTo)
	if err := spending.Watch(cc.InformerFactory); err != nil {
		return err
	}
	motor := launch.New(launch.Config{
		Cluster: args.ClusterName, BatchIdle: args.BatchIdleDuration.Duration, BatchMax: args.BatchMaxDuration.Duration,
		MaxInFlight: *args.MaxClaimsInFlight, NamespaceSelector: namespaces, Parallel: 64,
		Plan: capacity.Options{IgnorePreferences: args.PreferencePolicy == provision.PreferenceIgnore, RelaxMinValues: args.MinValuesPolicy == provision.MinValuesBestEffort,
			Effort: launch.DefaultEffort, NodeSurcharge: args.NodeSurchargeDollarsPerHour, PriceFactor: args.PriceFactors},
	}, launch.Parts{
		Clock: d.clock, Reservations: d.reservations, Cloud: provider, Claims: store, World: world, Recheck: recheck, Planner: capacity.NewPlanner(), Rooms: capacity.NewPlanner(),
		Nodes: nodeBuilder{}, Cluster: launch.NewCluster(client, boundTo), Queue: queue{sched}, Events: words,
		Pending: pending, Owners: owners, Spending: spending, Gangs: groups, Daemons: daemons.List, Hold: external.Hold, Judge: judge, Taints: lifecycle.Taints, Seed: time.Now().UnixNano(),
	})
	perMinute := brake.New(*args.MaxTerminationsPerMinute)
	groups.changed = motor.Changed
	daemons.OnChange(motor.DaemonsChanged)
	life, err := lifecycle.New(lifecycle.Config{
		Kube: client, Informers: cc.InformerFactory, Claims: store.Client(), Live: store.Live(), Cloud: provider,
		NodeFor: nodeOfClaim, Registering: motor.ClaimNamed, Registered: observe(provider), NotRegistered: notJoined(provider, store),
		ExpectedTaints: store.ExpectedTaints, RegistrationTimeout: args.RegistrationTimeout.Duration, Brake: perMinute, Recorder: store.Recorder(), Clock: d.clock,
		Hold: external.Hold, Close: motor.Close, StartupTimeout: args.InitializationTimeout.Duration, Awaited: d.reservations.Awaited,
		GivingUp: func(claim, why string, fault *guard.Fault) {
			spending.Ending(claim, fault)
			motor.GivingUp(claim, why)
		},
	})
	if err != nil {
		return err
	}

	ending, err := disruption.New(disruption.Config{
		Kube: client, Informers: cc.InformerFactory, Claims: store.Client(), Live: store.Live(), Fence: d.reservations, Nodes: life,
		Replacements: motor, Taken: blockOver(provider), Lost: takenBack(provider), Ending: disrupting(spending, store.Claim, provider.Describe), Brake: perMinute, DryRun: args.DisruptionDryRun, Hold: external.Hold, Recorder: store.Recorder(), Clock: d.clock,
	})
	if err != nil {
		return err
	}

	if err := cc.InformerFactory.Core().V1().Nodes().Informer().SetTransform(lifecycle.HideEphemeralTaints); err != nil {
		return fmt.Errorf("hiding the taints of nodes that are still initializing: %w", err)
	}
	simulate.ObserveNodes(sched, func(before, now *corev1.Node) {
		if now == nil {
			motor.NodeUncached(before)
		} else {
			motor.NodeChanged(before, now)
		}
	})
	podsRead, err := cc.InformerFactory.Core().V1().Pods().Informer().AddEventHandler(pending.Handler())
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := cc.InformerFactory.Core().V1().Pods().Informer().AddEventHandler(spending.Pods()); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	driversRead, err := cc.InformerFactory.Storage().V1().CSINodes().Informer().AddEventHandler(motor.CSINodes())
	if err != nil {
		return fmt.Errorf("watching CSINodes: %w", err)
	}
	storageRead, err := cc.InformerFactory.Storage().V1().CSIStorageCapacities().Informer().AddEventHandler(motor.StorageCapacities())
	if err != nil {
		return fmt.Errorf("watching CSIStorageCapacities: %w", err)
	}
	if _, err := cc.InformerFactory.Core().V1().Namespaces().Informer().AddEventHandler(motor.Namespaces()); err != nil {
		return fmt.Errorf("watching Namespaces: %w", err)
	}
	store.OnClaim(func(c *capacity.Claim, gone bool) {
		if ordersDedicated(c) {
			provider.OfferDedicated(dedicatedClasses(store)) // before the launch controller looks for the offerings that the claim can be launched as
		}
		if gone || c.Deleting {
			motor.ClaimGone(c.Name, "its NodeClaim was deleted")
		} else {
			motor.ClaimChanged(c)
		}
		if c.Registered && c.NodeName != "" {
			motor.ClaimNamed(c.Name, c.NodeName, c.ProviderID)
		}
		life.ClaimChanged(c.Name)
		ending.Changed()
	})
	store.OnPool(motor.Changed)
	store.OnGuard(func(o guard.Owner, retry bool) {
		if o.Pool != "" {
			spending.PoolChanged(o.Pool, store.ClassOf(o.Pool), retry)
		} else {
			spending.ClassChanged(o.Class, store.PoolsOf(o.Class), retry)
		}
	})
	store.OnPool(func() { provider.OfferDedicated(dedicatedClasses(store)) })
	external.OnChange(motor.HoldChanged)
	store.OnNodeClass(func(nc *ec2nc.EC2NodeClass, gone bool) {
		if gone {
			provider.DeleteNodeClass(nc.Name)
		} else {
			provider.SetNodeClass(nc)
		}
	})
	store.OnClassEnd(provider.ReleaseClass)
	store.SetClusterCA(provider.ClusterCA)
	store.SetTypes(provider.InstanceTypes)
	provider.OnChange(store.TypesChanged)
	provider.OnChange(motor.Changed)
	provider.OnInterruption(ending.Interrupted)
	provider.OnLearned(func(class, value string) error { return store.Note(ctx, class, objects.AnnotationLearned, value) })
	provider.OnNodeClass(func(name string, generation int64, st ec2nc.EC2NodeClassStatus) {
		if err := store.SetNodeClassStatus(ctx, name, generation, st); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not write the status of a node class", "ec2NodeClass", name)
		}
	})
	takeDownWithoutNodes(sched, names(profiles), d.reservations, d.classes)

	if err := d.publish(ctx, profiles, liveState{
		problem: func() string { return cmp.Or(external.Hold(), store.Problem()) }, cloud: provider.Status, claims: store.Claims, ledger: d.reservations.Summary,
		pools: func() []*capacity.Pool { return store.Pools(provider.InstanceTypes) },
	}); err != nil {
		return err
	}

	// Every replica may begin to read at once; the rest runs on the leader.
	d.motors.Go(func() { d.run(ctx, "store", store.Run) })
	d.motors.Go(func() { d.run(ctx, "watch for Karpenter", external.Run) })
	d.motors.Go(func() { groups.run(ctx) })
	whenLeading(sched, func() {
		d.start.Do(func() {
			d.motors.Go(func() { d.run(ctx, "cloud provider", endless(provider.Run)) })
			d.motors.Go(func() { words.Run(ctx) })
			d.motors.Go(func() {
				// The scheduler has waited for its own handlers only. A pod that Pending doesn't know when reservations are restored would
				// lose its own, and another node would be bought for it.
				if cache.WaitForCacheSync(ctx.Done(), podsRead.HasSynced, driversRead.HasSynced, storageRead.HasSynced, daemons.HasSynced) {
					d.run(ctx, "launcher", endless(motor.Run))
				}
			})
			d.motors.Go(func() { d.run(ctx, "pool status", store.RunStatus) })
			d.motors.Go(func() {
				if store.WaitForSync(ctx) {
					d.motors.Go(func() { d.run(ctx, "disruption", ending.Run) })
					d.run(ctx, "lifecycle", life.Run)
				}
			})
		})
	})
	return nil
}

// asJSON returns the configuration of a client for custom resources: they have no protobuf encoding, which the scheduler's own client uses.
func asJSON(cfg *rest.Config) *rest.Config {
	cfg = asOurselves(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = "application/json", ""
	return cfg
}

// asOurselves returns the configuration of a client with our user agent, by which audit logs and priority levels tell it from the
// scheduler's own.
func asOurselves(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = version.UserAgent()
	return cfg
}

// run runs a part of the program. If it ends before ctx does, the process ends: the other parts would go on, for example buying nodes that
// no controller drains or collects. A new process, or the next leader, starts all of them.
func (d *dovetail) run(ctx context.Context, name string, f func(context.Context) error) {
	err := f(ctx)
	if ctx.Err() != nil {
		return
	}
	err = fmt.Errorf("%s has stopped: %w", name, cmp.Or(err, errEnded))
	klog.FromContext(ctx).Error(err, "A part of Dovetail has stopped; the process ends")
	if d.end != nil {
		d.end(err)
	}
}

// endless turns a func without an error result into one that returns nil.
func endless(f func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		f(ctx)
		return nil
	}
}

var errEnded = errors.New("it has come to its end")

// until runs the scheduler, and stops it when a part of Dovetail has stopped. It returns the reason for that, or the scheduler's error.
func (d *dovetail) until(ctx context.Context, scheduler func(context.Context) error) error {
	ctx, d.end = context.WithCancelCause(ctx)
	defer func() {
		d.end(nil)
		d.wait()
	}()
	err := scheduler(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (d *dovetail) provider(ctx context.Context, args *provision.Args, server string, hold func() string) (*aws.Provider, error) {
	region := args.Region
	if region == "" {
		region = os.Getenv("AWS_REGION")
	}
	if region == "" {
		return nil, errors.New("ProvisionArgs: region: required, here or as AWS_REGION")
	}
	clients, err := d.connect(ctx, region)
	if err != nil {
		return nil, err
	}
	overhead := *args.VMMemoryOverheadPercent
	if overhead == 0 {
		overhead = -1 // none; for the provider zero means its default
	}
	return aws.New(aws.Config{
		Region: region, ClusterName: args.ClusterName, ClusterEndpoint: args.ClusterEndpoint, ClusterCABundle: args.ClusterCABundle,
		ClusterCIDR: args.ClusterCIDR, KubernetesVersion: server, VMMemoryOverheadPercent: overhead,
		ReservedENIs: args.ReservedENIs, PrefixDelegation: args.PrefixDelegation, InterruptionQueue: args.InterruptionQueue, Hold: hold, Clock: d.clock,
	}, clients)
}

// worlds returns the views of the cluster for the planner and for launches: one for each goroutine that uses one.
func worlds(ctx context.Context, sched *scheduler.Scheduler, profiles []profile, others frameworkruntime.Registry) (plan, recheck launch.World, err error) {
	deny := func(p profile) []string {
		return append([]string{provision.Name, binder.Name, binder.GateName}, p.args.SimulationDenyList...)
	}
	first := profiles[0]
	cfg := simulate.Config{Scheduler: sched, Profile: first.config, Registry: others, Deny: deny(first)}
	for _, p := range profiles[1:] {
		cfg.Also = append(cfg.Also, simulate.Also{Profile: p.config, Deny: deny(p)})
	}
	a, err := simulate.New(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	b, err := simulate.New(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	return worldOf{a}, worldOf{b}, nil
}

func names(profiles []profile) []string {
	out := make([]string, 0, len(profiles))
	for _, p := range profiles {
		out = append(out, p.config.SchedulerName)
	}
	return out
}

// provisionFor returns the other schedulers whose pods are demand, for whichever profile.
func provisionFor(profiles []profile) []string {
	var out []string
	for _, p := range profiles {
		for _, name := range p.args.ProvisionFor {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}
