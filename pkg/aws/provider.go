package aws

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/capacityreservation"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/instanceprofile"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/instancestatus"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/interruption"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/launchtemplate"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/permission"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/unavailable"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/zonalshift"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Provider is the adapter to EC2: it joins the parts, each of which owns what it knows, and runs their loops. All methods are safe for
// concurrent use.
//
// Lock order: a class's lock, then the catalogue's; no callback runs under a lock.
type Provider struct {
	*classes
	*launcher
	*instances
	*unavailable.Memory
	*interruption.Queue
	*instancestatus.Poller
	*bootstrap.ClusterReader
	changes

	cfg       Config
	clock     clock.WithTicker
	catalogue regions
	counts    *capacityreservation.Counts
	allowed   *permission.Checker
	shifts    *zonalshift.Watcher // nil: they don't count
}

var _ cloudprovider.Provider = (*Provider)(nil)

// regions keeps the data of the region up to date.
type regions interface {
	Region() *catalog.Region
	Problem(part string) error
	Status() error
	Loops() []func(context.Context)
}

// New returns a provider. It makes no request and starts nothing: it succeeds without credentials and without a connection to AWS.
func New(cfg Config, c sdk.Clients) (*Provider, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("AWS provider: %w", err)
	}
	if c.EC2 == nil || c.SSM == nil || c.IAM == nil || c.Pricing == nil {
		return nil, errors.New("AWS provider: a client is missing")
	}
	if cfg.ZonalShift && (c.ARCZonalShift == nil || c.EKS == nil) {
		return nil, errors.New("AWS provider: a client is missing: that of zonal shifts or of EKS")
	}
	if cfg.InterruptionQueue != "" && c.SQS == nil {
		return nil, errors.New("AWS provider: a client is missing: that of the interruption queue")
	}
	p := &Provider{cfg: cfg, clock: cfg.Clock}
	own, free := ownership.Owner{Cluster: cfg.ClusterName, ManagedBy: cfg.ManagedBy}, network.NewAddresses()
	known := catalog.NewCache(cfg.catalogue(), cfg.Clock, c.EC2, c.Pricing, p.bump)
	p.catalogue = known
	p.counts = capacityreservation.NewCounts(p.bump)
	p.Memory = unavailable.New(cfg.Clock, cfg.ExhaustedFor, p.bump)
	if cfg.ZonalShift {
		p.shifts = zonalshift.New(cfg.Clock, c.EKS, c.ARCZonalShift, cfg.ClusterName, func() {
			p.bump()
			p.classes.wake() // the status of a class names the zones that traffic is shifted away from
		})
	}
	p.ClusterReader = bootstrap.NewClusterReader(cfg.cluster(), c.EKS, cfg.Clock, func() { p.classes.wake() })
	p.classes = newClasses(cfg.Clock, account{
		placements:   c.EC2,
		network:      network.NewFinder(c.EC2, free),
		images:       images{ec2: c.EC2, ssm: c.SSM, cluster: p.ClusterReader},
		profiles:     instanceprofile.New(c.IAM, cfg.Clock, own, cfg.Region, cfg.Hold),
		reservations: capacityreservation.NewFinder(c.EC2, cfg.Clock, p.counts),
		cluster:      p.ClusterReader, owner: own, sizes: cfg.sizes(), every: cfg.lookUps(), shifts: p.shifts,
	}, p.bump)
	p.classes.several = cfg.ManagedBy != ""
	p.launcher = &launcher{
		ec2: c.EC2, clock: cfg.Clock, classes: p.classes, catalogue: known, exhausted: p.Memory, addresses: free, counts: p.counts,
		templates: launchtemplate.New(cfg.Clock, c.EC2, own), cluster: p.ClusterReader, owner: own, shifts: p.shifts,
	}
	p.instances = newInstances(c.EC2, cfg.Clock, p.classes, p.ClusterReader, p.Memory, own)
	p.Queue = interruption.NewQueue(cfg.InterruptionQueue, c.SQS, cfg.Clock, interruption.NewConfirmer(c.EC2, cfg.Clock, own), cfg.Hold)
	p.allowed = permission.New(cfg.Clock, c.EC2, cfg.Hold, p.subjects)
	p.Poller = instancestatus.NewPoller(c.EC2, cfg.Clock, cfg.Hold)
	return p, nil
}

// OnInterruption registers f for what is announced on the queue, and for the events that EC2 has scheduled.
func (p *Provider) OnInterruption(f func(context.Context, []capacity.Interruption) []error) {
	p.Queue.OnInterruption(f)
	p.Poller.OnInterruption(f)
}

// Run refreshes everything until ctx ends; it returns when all of its goroutines have ended.
func (p *Provider) Run(ctx context.Context) {
	var wg sync.WaitGroup
	loops := append(p.catalogue.Loops(), p.expiries, p.removeUnused, p.ClusterReader.Keep, p.Queue.Listen, p.Poller.Poll)
	if !p.cfg.DisableDryRun {
		loops = append(loops, p.allowed.Run)
	}
	if p.shifts != nil {
		loops = append(loops, p.shifts.Poll)
	}
	for _, loop := range loops {
		wg.Go(func() { panics.Again(ctx, p.clock, "aws", loop) })
	}
	p.classes.run(ctx)
	wg.Wait()
}

// Version grows whenever InstanceTypes may return something else.
func (p *Provider) Version() uint64 {
	p.expire()
	return p.version.Load()
}

// Status returns an error that names which data of the region is missing or out of date; nil: none.
func (p *Provider) Status() error {
	return errors.Join(p.catalogue.Status(), p.ClusterReader.Known().Err)
}

// HoldChanged looks up again what could not be created while another controller led.
func (p *Provider) HoldChanged() { p.classes.wake() }

// expire makes offerings available again whose time has passed. Callers of InstanceTypes may hold locks that an OnChange function
// needs, too, so expire doesn't call those functions: the loop expiries does.
func (p *Provider) expire() {
	if p.Expire() {
		p.version.Add(1)
		p.untold.Store(true)
	}
}

const expiryPeriod = time.Second

// expiries calls the OnChange functions for offerings that have become available again, even if InstanceTypes isn't called.
func (p *Provider) expiries(ctx context.Context) {
	for sdk.Sleep(ctx, p.clock, expiryPeriod) {
		p.expire()
		if p.untold.Swap(false) {
			p.notify()
		}
	}
}

// changes counts the changes of what InstanceTypes returns.
type changes struct {
	version atomic.Uint64
	untold  atomic.Bool // the version has grown and the OnChange functions have not been called

	mu       sync.Mutex
	onChange []func()
}

// OnChange registers a function that is called whenever InstanceTypes may return something else. It must not block.
func (c *changes) OnChange(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onChange = append(c.onChange, f)
}

func (c *changes) bump() {
	c.version.Add(1)
	c.notify()
}

func (c *changes) notify() {
	c.mu.Lock()
	fs := c.onChange
	c.mu.Unlock()
	for _, f := range fs {
		f()
	}
}
