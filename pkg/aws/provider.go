package aws

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Provider is the adapter to EC2. All methods are safe for concurrent use.
//
// Lock order: a class's lock, then the catalogue's; no callback runs under a lock.
type Provider struct {
	cfg   Config
	clock clock.WithTicker
	ec2   EC2
	ssm   SSM
	iam   IAM
	eks   EKS
	sqs   SQS

	catalogue *catalogue
	exhausted *exhausted
	addresses *addresses
	counts    *counts
	learned   *learned
	taken     *takenBack
	templates *templates
	describes *batcher[string, described]
	ends      *batcher[string, struct{}]

	version atomic.Uint64
	untold  atomic.Bool // the version has grown and the OnChange functions have not been called
	join    atomic.Pointer[joined]

	onInterruption func(context.Context, []capacity.Interruption) []error

	mu      sync.Mutex
	classes map[string]*class
	// dedicated are the names of the classes given to OfferDedicated.
	dedicated map[string]bool
	// running starts the resolver of a class; nil while Run isn't running.
	running     func(*class)
	stops       map[string]context.CancelFunc
	onChange    []func()
	onLearned   func(nodeClass, value string) error
	onNodeClass []func(name string, generation int64, status ec2nc.EC2NodeClassStatus)
}

// New returns a provider. It makes no request and starts nothing: it succeeds without credentials and without a connection to AWS.
func New(cfg Config, c Clients) (*Provider, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("AWS provider: %w", err)
	}
	if c.EC2 == nil || c.SSM == nil || c.IAM == nil || c.Pricing == nil {
		return nil, errors.New("AWS provider: a client is missing")
	}
	if cfg.InterruptionQueue != "" && c.SQS == nil {
		return nil, errors.New("AWS provider: a client is missing: that of the interruption queue")
	}
	p := &Provider{
		cfg: cfg, clock: cfg.Clock, ec2: c.EC2, ssm: c.SSM, iam: c.IAM, eks: c.EKS, sqs: c.SQS,
		addresses: &addresses{free: map[string]int64{}}, classes: map[string]*class{}, stops: map[string]context.CancelFunc{},
	}
	p.catalogue = newCatalogue(&cfg, c, p.bump)
	p.counts, p.learned = newCounts(p.bump), newLearned(p.bump)
	p.exhausted = newExhausted(cfg.Clock, cfg.ExhaustedFor, p.bump)
	p.taken = &takenBack{clock: cfg.Clock, seen: map[string]time.Time{}}
	p.templates = newTemplates(cfg.Clock, c.EC2)
	p.describes = newBatcher(cfg.Clock, p.describeAll)
	p.ends = newBatcher(cfg.Clock, p.terminateAll)
	p.join.Store(configured(&cfg))
	return p, nil
}

// Run refreshes everything until ctx ends; it returns when all of its goroutines have ended.
func (p *Provider) Run(ctx context.Context) {
	var wg sync.WaitGroup
	loops := append(p.catalogue.loops(&p.cfg), p.expiries, p.keepTidy)
	if p.eks != nil && !p.join.Load().complete() {
		loops = append(loops, p.keepJoin)
	}
	if p.cfg.InterruptionQueue != "" && p.onInterruption != nil {
		loops = append(loops, p.listen)
	}
	for _, loop := range loops {
		wg.Go(func() { panics.Again(ctx, p.clock, "aws", loop) })
	}
	start := func(c *class) { // called under mu
		cctx, stop := context.WithCancel(ctx)
		p.stops[c.name] = stop
		wg.Go(func() {
			defer stop()
			panics.Again(cctx, p.clock, "node class", func(ctx context.Context) { p.keepClass(ctx, c) })
		})
	}
	p.mu.Lock()
	p.running = start
	for _, c := range p.classes {
		start(c)
	}
	p.mu.Unlock()

	<-ctx.Done()
	p.mu.Lock()
	p.running = nil
	p.mu.Unlock()
	wg.Wait()
}

// SetNodeClass stores a version of the object from the watch. It is resolved in the background; until then the class is not ready.
func (p *Provider) SetNodeClass(nc *ec2nc.EC2NodeClass) {
	nc = nc.DeepCopy()
	p.mu.Lock()
	c, ok := p.classes[nc.Name]
	if !ok {
		c = newClass(nc)
		c.dedicated.Store(p.dedicated[nc.Name])
		p.classes[nc.Name] = c
		if p.running != nil {
			p.running(c)
		}
	}
	p.mu.Unlock()
	p.remember(c, nc)
	if !ok || c.set(nc) {
		p.bump()
	}
}

// DeleteNodeClass forgets a class.
func (p *Provider) DeleteNodeClass(name string) {
	p.mu.Lock()
	_, ok := p.classes[name]
	delete(p.classes, name)
	if stop := p.stops[name]; stop != nil {
		stop()
		delete(p.stops, name)
	}
	p.mu.Unlock()
	if ok {
		p.bump()
	}
}

// OnNodeClass registers a function that is called with the status of a class whenever it changes. Register it before Run. It is called
// from the class's own goroutine and may block.
func (p *Provider) OnNodeClass(f func(name string, generation int64, status ec2nc.EC2NodeClassStatus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onNodeClass = append(p.onNodeClass, f)
}

// OnChange registers a function that is called whenever InstanceTypes may return something else. It must not block.
func (p *Provider) OnChange(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onChange = append(p.onChange, f)
}

// Version grows whenever InstanceTypes may return something else.
func (p *Provider) Version() uint64 {
	p.expire()
	return p.version.Load()
}

// Status returns an error that names which data of the region is missing or out of date; nil: none.
func (p *Provider) Status() error {
	return errors.Join(p.catalogue.status(), p.join.Load().err)
}

func (p *Provider) class(name string) *class {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.classes[name]
}

func (p *Provider) bump() {
	p.version.Add(1)
	p.tell()
}

// expire makes offerings available again whose time has passed. Callers of InstanceTypes may hold locks that an OnChange function
// needs, too, so expire doesn't call those functions: the loop expiries does.
func (p *Provider) expire() {
	if p.exhausted.expire() {
		p.version.Add(1)
		p.untold.Store(true)
	}
}

func (p *Provider) tell() {
	p.mu.Lock()
	fs := p.onChange
	p.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

const expiryPeriod = time.Second

// expiries calls the OnChange functions for offerings that have become available again, even if InstanceTypes isn't called.
func (p *Provider) expiries(ctx context.Context) {
	for sleep(ctx, p.clock, expiryPeriod) {
		p.expire()
		if p.untold.Swap(false) {
			p.tell()
		}
	}
}
