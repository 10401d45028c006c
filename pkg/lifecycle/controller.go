package lifecycle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Instances is what the lifecycle of one node needs of the cloud. Where an error means that the instance doesn't exist, it wraps
// capacity.ErrInstanceNotFound; its text says what was being done with which instance.
type Instances interface {
	Describe(ctx context.Context, id string) (capacity.Instance, error)
	// Terminate returns nil when the call was accepted or the instance had already ended.
	Terminate(ctx context.Context, id string) error
	// TagClaim tags the instance with the names of its claim and its node.
	TagClaim(ctx context.Context, id, claim, nodeName string) error
}

// Inventory lists what the cloud has of this cluster.
type Inventory interface {
	// List returns every instance of the cluster that isn't terminated.
	List(ctx context.Context) ([]capacity.Instance, error)
	// FindBatch returns the live instances tagged with a launch batch's token, sorted by ID.
	FindBatch(ctx context.Context, token string) ([]capacity.Instance, error)
}

// Cloud is both.
type Cloud interface {
	Instances
	Inventory
}

// Config holds the parts of a Controller. The fields that say "when set" are optional, and so is Hold; all others are required.
type Config struct {
	Kube kubernetes.Interface
	// Informers is the scheduler's factory. HideEphemeralTaints has to be set on its Node informer.
	Informers informers.SharedInformerFactory
	// Claims reads NodeClaims from a cache and writes them; Live reads past the cache.
	Claims client.Client
	Live   client.Reader
	Cloud  Cloud
	// NodeFor builds the Node of a launched claim as it is created ahead of the kubelet.
	NodeFor func(claim *karpv1.NodeClaim, inst capacity.Instance) (*corev1.Node, error)
	// Brake, when set, bounds how many instances without owner are terminated per minute.
	Brake *brake.Brake
	// Registered, when set, is called for each registered node, once per process, so that others can learn from what its kubelet reports.
	// It must not block.
	Registered func(claim *karpv1.NodeClaim, node *corev1.Node)
	// Registering, when set, is called with the claim's Node before pods may be bound to it, perhaps more than once. It must not block.
	Registering func(claim, node, providerID string)
	// Close, when set, makes this process's own scheduler keep pods off a terminating Node, from its return on. It reports whether pods
	// that passed before are still being bound there. It must not block.
	Close func(node, providerID string) (bindsInFlight bool)
	// NotRegistered, when set, is called for a claim that was given up because it has not become a node in time.
	NotRegistered func(claim *karpv1.NodeClaim, message string)
	// GivingUp, when set, is called with the reason before a claim is given up, perhaps more than once; a nil fault: that is no failure. It
	// must not block.
	GivingUp func(claim, why string, fault *guard.Fault)
	// ExpectedTaints, when set, returns the taints that new nodes of a pool are known to get although the pool doesn't declare them: they
	// are treated like its startup taints.
	ExpectedTaints func(pool string) []corev1.Taint
	// RegistrationTimeout is how long instances may be without kubelet; zero: DefaultRegistrationTimeout.
	RegistrationTimeout time.Duration
	// StartupTimeout is how long a Ready node that pods wait for may keep its startup taints; zero: DefaultStartupTimeout. Awaited, when
	// set, reports whether pods wait for the claim's node. It must not block.
	StartupTimeout time.Duration
	Awaited        func(claim string) bool
	// Hold, when set, returns why nothing may be changed now (another controller owns these objects), or "".
	Hold     func() string
	Recorder events.EventRecorder
	Clock    clock.WithTicker
}

const (
	workers = 64
	// holdRetry is how often a paused claim is checked again.
	holdRetry = 10 * time.Second
)

// key is one thing to reconcile: a claim, or a Node without one, or (the zero key) all instances.
type key struct{ claim, node string }

// Controller takes NodeClaims and their Nodes through the stages of the package comment.
type Controller struct {
	kube     kubernetes.Interface
	claims   client.Client
	live     client.Reader
	cloud    Cloud
	nodeFor  func(*karpv1.NodeClaim, capacity.Instance) (*corev1.Node, error)
	brake    *brake.Brake
	hold     func() string
	close    func(node, providerID string) (bindsInFlight bool)
	naming   func(claim, node, providerID string)
	came     func(*karpv1.NodeClaim, *corev1.Node)
	failed   func(*karpv1.NodeClaim, string) // the claim has not become a node in time
	givingUp func(claim, why string, fault *guard.Fault)
	expected func(pool string) []corev1.Taint
	recorder events.EventRecorder
	clock    clock.WithTicker
	// registrationTimeout as in Config, never zero.
	registrationTimeout time.Duration
	startupTimeout      time.Duration
	awaited             func(claim string) bool

	nodes     cache.SharedIndexInformer
	pods      cache.SharedIndexInformer
	nodeList  corelisters.NodeLister
	volumes   corelisters.PersistentVolumeLister
	volClaims corelisters.PersistentVolumeClaimLister
	attached  storagelisters.VolumeAttachmentLister

	index     *claimIndex
	sightings *sightings
	leases    *leases
	evictions *evictions
	podEvents *podEvents
	waits     *waits
	queue     atomic.Pointer[workqueue.TypedRateLimitingInterface[key]]
	collected int // runs of garbage collection; only the worker of the zero key uses it
}

// New builds a Controller and adds the indexes that it needs to the informers. It starts nothing and makes no calls.
func New(cfg Config) (*Controller, error) {
	core, storage := cfg.Informers.Core().V1(), cfg.Informers.Storage().V1()
	c := &Controller{
		kube: cfg.Kube, claims: cfg.Claims, live: cfg.Live, cloud: cfg.Cloud, nodeFor: cfg.NodeFor, brake: cfg.Brake, hold: cfg.Hold,
		recorder: cfg.Recorder, clock: cfg.Clock,
		nodes: core.Nodes().Informer(), pods: core.Pods().Informer(),
		nodeList: core.Nodes().Lister(), volumes: core.PersistentVolumes().Lister(),
		volClaims: core.PersistentVolumeClaims().Lister(), attached: storage.VolumeAttachments().Lister(),
		index: newClaimIndex(), sightings: newSightings(), leases: newLeases(), evictions: newEvictions(),
		podEvents: newPodEvents(), waits: newWaits(),
	}
	if c.came = cfg.Registered; c.came == nil {
		c.came = func(*karpv1.NodeClaim, *corev1.Node) {}
	}
	if c.naming = cfg.Registering; c.naming == nil {
		c.naming = func(string, string, string) {}
	}
	if c.failed = cfg.NotRegistered; c.failed == nil {
		c.failed = func(*karpv1.NodeClaim, string) {}
	}
	if c.givingUp = cfg.GivingUp; c.givingUp == nil {
		c.givingUp = func(string, string, *guard.Fault) {}
	}
	if c.registrationTimeout = cfg.RegistrationTimeout; c.registrationTimeout == 0 {
		c.registrationTimeout = DefaultRegistrationTimeout
	}
	if c.startupTimeout = cfg.StartupTimeout; c.startupTimeout == 0 {
		c.startupTimeout = DefaultStartupTimeout
	}
	if c.awaited = cfg.Awaited; c.awaited == nil {
		c.awaited = func(string) bool { return false }
	}
	if c.expected = cfg.ExpectedTaints; c.expected == nil {
		c.expected = func(string) []corev1.Taint { return nil }
	}
	if c.close = cfg.Close; c.close == nil {
		c.close = func(string, string) bool { return false }
	}
	if c.hold == nil {
		c.hold = func() string { return "" }
	}
	// Requested here so that the factory's owner starts these informers with the others.
	core.PersistentVolumes().Informer()
	core.PersistentVolumeClaims().Informer()
	storage.VolumeAttachments().Informer()
	if err := indexNodes(c.nodes); err != nil {
		return nil, err
	}
	if err := pods.Index(c.pods); err != nil {
		return nil, err
	}
	return c, nil
}

// ClaimChanged reports that a NodeClaim was created, changed or deleted. Safe for concurrent use; ignored while the Controller isn't
// running, because Run begins with all claims.
func (c *Controller) ClaimChanged(name string) { c.enqueue(key{claim: name}) }

// Run works until ctx ends, then waits for everything under way. The informers must have been started.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[key](100*time.Millisecond, time.Minute),
		workqueue.TypedRateLimitingQueueConfig[key]{Name: "dovetail_lifecycle", Clock: c.clock})
	c.queue.Store(&queue)
	defer c.queue.Store(nil)
	defer queue.ShutDown()

	all, err := c.allClaims(ctx)
	if err != nil {
		return err
	}
	// Indexed before Nodes are watched, so that no Node seems to have no claim.
	for i := range all.Items {
		c.index.observe(&all.Items[i])
	}
	stop, err := c.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for i := range all.Items {
		queue.Add(key{claim: all.Items[i].Name})
	}
	queue.Add(key{})

	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c.next(ctx, queue) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	wg.Wait()
	return nil
}

// listPause is how long Run waits before it lists the claims again.
const listPause = time.Second

// allClaims lists the claims, and retries until that works. It returns an error only when ctx has ended.
func (c *Controller) allClaims(ctx context.Context) (all karpv1.NodeClaimList, err error) {
	for {
		if err = c.claims.List(ctx, &all); err == nil {
			return all, nil
		}
		klog.FromContext(ctx).Error(err, "Could not list NodeClaims, will retry")
		select {
		case <-ctx.Done():
			return all, ctx.Err()
		case <-c.clock.After(listPause):
		}
	}
}

// next handles one key and returns false when the queue has been shut down.
func (c *Controller) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[key]) bool {
	k, down := queue.Get()
	if down {
		return false
	}
	defer queue.Done(k)
	if ctx.Err() != nil {
		return true
	}
	logger := klog.FromContext(ctx)
	if k.claim != "" {
		logger = klog.LoggerWithValues(logger, "nodeClaim", k.claim)
	} else if k.node != "" {
		logger = klog.LoggerWithValues(logger, "node", k.node)
	}
	var after time.Duration
	err := panics.Catch(klog.NewContext(ctx, logger), "lifecycle", func() (err error) {
		after, err = c.reconcile(klog.NewContext(ctx, logger), k)
		return err
	})
	switch {
	case apierrors.IsConflict(err):
		// The cache is behind another write, whose event is on the way.
		queue.AddRateLimited(k)
	case err != nil:
		if ctx.Err() == nil {
			logger.Error(err, "Lifecycle step failed, will retry")
		}
		queue.AddRateLimited(k)
		if after > 0 { // the other stages' timers don't wait for the one that fails
			queue.AddAfter(k, after)
		}
	default:
		queue.Forget(k)
		if after > 0 {
			queue.AddAfter(k, after)
		}
	}
	return true
}

// reconcile handles one key and returns when to handle it again; 0: when something changes.
func (c *Controller) reconcile(ctx context.Context, k key) (time.Duration, error) {
	if why := c.hold(); why != "" {
		klog.FromContext(ctx).V(4).Info("Paused", "reason", why)
		return holdRetry, nil
	}
	switch {
	case k.claim != "":
		return c.reconcileClaim(ctx, k.claim)
	case k.node != "":
		return c.reconcileNode(ctx, k.node)
	default:
		return c.collect(ctx)
	}
}

func (c *Controller) enqueue(k key) {
	if q := c.queue.Load(); q != nil {
		(*q).Add(k)
	}
}
