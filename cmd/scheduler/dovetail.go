package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/devices"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/podconditions"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
	"github.com/dovetail-scheduler/dovetail/pkg/version"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// dovetail holds what runs beside the scheduler.
type dovetail struct {
	clock        clock.WithTicker
	cloud        cloud
	publish      func(ctx context.Context, profiles []profile, f liveState) error
	others       func() frameworkruntime.Registry // plugins that are neither ours nor upstream's
	reservations *reservations.Ledger
	classes      *pending.Classes // created with the first profile that uses a plugin
	conditions   *podconditions.Conditions
	controllers  sync.WaitGroup
	start        sync.Once
	// end stops the process; nil: it can't be stopped from here.
	end context.CancelCauseFunc
}

func newDovetail() *dovetail {
	d := &dovetail{clock: clock.RealClock{}, cloud: onAWS(), publish: publish, others: outOfTree}
	d.reservations = reservations.New(d.clock)
	d.conditions = podconditions.New(d.clock, d.reservations.Gate)
	return d
}

// plugins returns the plugins that this binary has besides kube-scheduler's own: ours and those of other projects.
func (d *dovetail) plugins() []app.Option {
	out := []app.Option{
		app.WithPlugin(provision.Name, provision.New(d.reservations, func(h fwk.Handle) provision.Classifier { return d.classifier(h) })),
		app.WithPlugin(binder.Name, binder.New(d.reservations, func(h fwk.Handle) binder.Classifier { return d.classifier(h) })),
		app.WithPlugin(binder.GateName, binder.NewGate(d.reservations, func(h fwk.Handle) binder.Classifier { return d.classifier(h) }, d.conditions)),
		app.WithPlugin(binder.InitializingNodesName,
			binder.NewInitializingNodes(d.reservations, func(h fwk.Handle) binder.Classifier { return d.classifier(h) }, lifecycle.HiddenTaints)),
	}
	for name, factory := range d.others() {
		out = append(out, app.WithPlugin(name, factory))
	}
	return out
}

// classifier returns the Classes that all profiles share, because they share the informers it reads.
func (d *dovetail) classifier(h fwk.Handle) *pending.Classes {
	if d.classes == nil {
		d.classes = pending.NewClasses(h.SharedInformerFactory())
	}
	return d.classes
}

func (d *dovetail) used() bool { return d.classes != nil }

func (d *dovetail) wait() { d.controllers.Wait() }

// introduce builds the controllers and connects them to the scheduler. Nothing runs before the informers do, and nothing is written before
// this replica leads.
//
//  1. Read the profiles' arguments.
//  2. Build the adapters: Karpenter's objects, the cloud.
//  3. Build the controllers that launch nodes, then those that end them; some register their handlers of informers.
//  4. Register the other handlers, then the callbacks between the parts.
//  5. Run what reads; once this replica leads, all the rest.
func (d *dovetail) introduce(ctx context.Context, cc *schedulerserverconfig.CompletedConfig, sched *scheduler.Scheduler) error {
	profiles, err := ourProfiles(&cc.ComponentConfig, sched)
	if err != nil {
		return err
	}
	warn(ctx, cc, profiles)
	cc.InformerFactory = observe.SharePods(cc.InformerFactory)
	d.cloud.nodeClass.ManagedBy = profiles[0].args.Name
	p, err := d.adapters(ctx, cc, profiles)
	if err != nil {
		return err
	}
	if err := p.peers.Check(ctx); err != nil {
		return err
	}
	if err := d.launching(ctx, cc, sched, profiles, p); err != nil {
		return err
	}
	if err := d.endings(cc, profiles, p); err != nil {
		return err
	}
	if err := p.watch(cc, sched, d.cloud.nodeClass.Label()); err != nil {
		return err
	}
	p.connect(ctx)
	if p.metrics, err = d.metrics(cc, profiles[0].args, p); err != nil {
		return err
	}
	tellOfFailures(sched, names(profiles), p.pending)
	takeDownWithoutNodes(sched, names(profiles), d.reservations, d.classes)
	if err := d.publish(ctx, profiles, liveState{
		problem: func() error { return cmp.Or(p.external.Hold(), p.store.Problem()) }, cloud: p.provider.Status, claims: p.store.Claims, ledger: d.reservations.Summary,
		pools: func() []*capacity.Pool { return p.store.Pools(p.provider.InstanceTypes) },
	}); err != nil {
		return err
	}
	d.runParts(ctx, sched, profiles, p)
	return nil
}

// warn logs arguments with an old name, and extenders, which may make Dovetail buy nodes in vain.
func warn(ctx context.Context, cc *schedulerserverconfig.CompletedConfig, profiles []profile) {
	logger := klog.FromContext(ctx)
	for _, p := range profiles {
		for _, w := range p.args.Warnings {
			logger.Info("An argument of Provision has an old name", "profile", p.config.SchedulerName, "warning", w)
		}
	}
	if asked := provision.Extenders(cc.ComponentConfig.Extenders); len(asked) > 0 {
		logger.Info("Extenders are not called before nodes are bought: a pod that they refuse everywhere has a node launched in vain; "+
			"namespaceSelector of ProvisionArgs keeps such pods from causing launches", "extenders", asked)
	}
}

// runParts runs the parts.
func (d *dovetail) runParts(ctx context.Context, sched *scheduler.Scheduler, profiles []profile, p *parts) {
	// Every replica may begin to read at once; the rest runs on the leader.
	d.controllers.Go(func() { d.run(ctx, "store", p.store.Run) })
	d.controllers.Go(func() { d.run(ctx, "watch for Karpenter", p.external.Run) })
	d.controllers.Go(func() { p.groups.run(ctx) })
	d.controllers.Go(func() { p.metrics.listen(ctx) })
	d.controllers.Go(func() { d.run(ctx, "watch for other Dovetails", p.peers.Run) })
	whenLeading(ctx, sched, d.clock, func() {
		p.pending.Asked()
		d.start.Do(func() {
			d.controllers.Go(func() {
				if err := p.peers.Register(ctx); err != nil {
					d.ended(ctx, err)
					return
				}
				d.lead(ctx, sched, profiles, p)
			})
		})
	}, p.launch.Launcher.Restored())
}

// lead runs what only the leader runs.
func (d *dovetail) lead(ctx context.Context, sched *scheduler.Scheduler, profiles []profile, p *parts) {
	d.controllers.Go(func() { d.run(ctx, "cloud provider", endless(p.provider.Run)) })
	d.controllers.Go(func() { p.events.Run(ctx) })
	d.controllers.Go(func() { d.conditions.Run(ctx, p.client, p.pods) })
	d.controllers.Go(func() { p.metrics.lead(ctx) })
	d.controllers.Go(func() {
		// The scheduler has waited for its own handlers only. A pod that Pending hasn't seen when reservations are restored would lose its
		// reservation, and another node would be bought for it.
		if cache.WaitForCacheSync(ctx.Done(), p.synced...) {
			d.run(ctx, "launcher", endless(p.launch.Launcher.Run))
		}
	})
	d.controllers.Go(func() { d.run(ctx, "pool status", p.store.RunStatus) })
	d.controllers.Go(func() {
		if p.store.WaitForSync(ctx) {
			d.run(ctx, "capacity buffers", p.buffers.Run)
		}
	})
	d.controllers.Go(func() {
		if p.store.WaitForSync(ctx) {
			d.run(ctx, "provisioning requests", p.requests.Run)
		}
	})
	d.controllers.Go(func() {
		if p.store.WaitForSync(ctx) {
			warnOfScores(ctx, profiles, sched, p.store.Client())
			d.controllers.Go(func() { d.run(ctx, "disruption", p.ending.Run) })
			d.run(ctx, "lifecycle", p.life.Run)
		}
	})
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
	d.ended(ctx, fmt.Errorf("%s has stopped: %w", name, cmp.Or(err, errEnded)))
}

// ended ends the process because of err, unless ctx has ended.
func (d *dovetail) ended(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
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

// worlds returns the views of the cluster for the planner and for launches: one for each goroutine that uses one.
func worlds(ctx context.Context, sched *scheduler.Scheduler, profiles []profile, others frameworkruntime.Registry, of *devices.Source) (plan, recheck provisioning.World, err error) {
	deny := func(p profile) []string {
		return append([]string{provision.Name, binder.Name, binder.GateName}, p.args.SimulationDenyList...)
	}
	first := profiles[0]
	cfg := simulate.Config{Scheduler: sched, Profile: first.config, Registry: others, Deny: deny(first), Devices: of}
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

// provisionFor returns the names of all other schedulers for whose pods some profile launches nodes.
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
