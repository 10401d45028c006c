package disruption

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Fence keeps our own scheduler off a node.
type Fence interface {
	// Fence is false, and nothing is fenced, when a pod is planned for the node, promised room there or on its way. After
	// true nothing is bound there until Unfence.
	Fence(node string) bool
	Unfence(node string)
}

// Nodes keeps other schedulers off a node, and knows what has happened there.
type Nodes interface {
	Disrupt(ctx context.Context, node *corev1.Node) error
	Undisrupt(ctx context.Context, node *corev1.Node) error
	// LastPodEvent is the last time something came to or left the node in this process's life; zero: unknown.
	LastPodEvent(node string) time.Time
}

// Config is what a Controller is made of. Everything but Hold, Replacements, Taken, Lost and DryRun is required.
type Config struct {
	Kube      kubernetes.Interface
	Informers informers.SharedInformerFactory
	// Claims reads NodeClaims and NodePools from a cache and deletes claims; Live reads past the cache.
	Claims client.Client
	Live   client.Reader
	Fence  Fence
	Nodes  Nodes
	// Replacements, when set, are planned before a node that has to go is drained.
	Replacements Replacements
	// Taken, when set, is when the capacity that a claim's machine runs on is taken back, and why; false: never, or nobody knows.
	Taken func(claim *karpv1.NodeClaim) (at time.Time, why string, ok bool)
	// Lost, when set, is told of a claim whose machine the cloud takes back for want of capacity, perhaps more than once.
	Lost func(claim *karpv1.NodeClaim)
	// Ending, when set, is told why a claim is about to be ended.
	Ending func(ctx context.Context, claim, reason string)
	// Brake bounds how many nodes end per minute.
	Brake *brake.Brake
	// DryRun: say what would be ended for being empty or expired, by event and log, and end none of it.
	DryRun bool
	// Hold, when set, says why nothing may be ended at the moment; empty: go on.
	Hold     func() string
	Recorder events.EventRecorder
	Clock    clock.WithTicker
}

const (
	// pollEvery is how often a pass is made if nothing asks for one.
	pollEvery = 10 * time.Second
	// gatherFor is how long changes are gathered before a pass is made because of them.
	gatherFor = time.Second
)

// Controller makes the passes of the package comment.
type Controller struct {
	kube     kubernetes.Interface
	claims   client.Client
	live     client.Reader
	fence    Fence
	nodes    Nodes
	replace  Replacements
	taken    func(*karpv1.NodeClaim) (time.Time, string, bool)
	lost     func(*karpv1.NodeClaim)
	ending   func(ctx context.Context, claim, reason string)
	brake    *brake.Brake
	dryRun   bool
	hold     func() string
	recorder events.EventRecorder
	clock    clock.WithTicker
	nodeList corelisters.NodeLister
	pods     cache.SharedIndexInformer

	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[struct{}]]
	// Only Run and the pass touch what follows. It may be lost at any moment.

	// started is since when pods have been watched.
	started time.Time
	// going are claims that were deleted here and that the cache still shows alive, by UID.
	going map[string]bool
	// leaving are claims whose time is over: their nodes are closed while their pods' new room is made, or drained; by UID.
	leaving map[string]*replacedNode
	// said is when a claim's fate was told without being carried out, by UID and reason.
	said map[string]time.Time
}

// New builds a Controller. It starts nothing and calls nobody.
func New(cfg Config) (*Controller, error) {
	core := cfg.Informers.Core().V1()
	c := &Controller{
		kube: cfg.Kube, claims: cfg.Claims, live: cfg.Live, fence: cfg.Fence, nodes: cfg.Nodes, replace: cfg.Replacements,
		brake: cfg.Brake, dryRun: cfg.DryRun, hold: cfg.Hold, recorder: cfg.Recorder, clock: cfg.Clock,
		nodeList: core.Nodes().Lister(), pods: core.Pods().Informer(), going: map[string]bool{}, leaving: map[string]*replacedNode{},
		said: map[string]time.Time{},
	}
	if c.taken = cfg.Taken; c.taken == nil {
		c.taken = func(*karpv1.NodeClaim) (time.Time, string, bool) { return time.Time{}, "", false }
	}
	c.ending = cfg.Ending
	if c.lost = cfg.Lost; c.lost == nil {
		c.lost = func(*karpv1.NodeClaim) {}
	}
	if c.hold == nil {
		c.hold = func() string { return "" }
	}
	core.Nodes().Informer() // registered here so that the factory's owner starts it with the rest
	if err := pods.Index(c.pods); err != nil {
		return nil, err
	}
	return c, nil
}

// Changed asks for a pass soon. Safe from any goroutine; ignored while not running, because Run begins with one.
func (c *Controller) Changed() {
	if q := c.queue.Load(); q != nil {
		(*q).AddAfter(struct{}{}, gatherFor)
	}
}

// Run makes passes until ctx ends. The informers must have been started.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[struct{}](time.Second, time.Minute),
		workqueue.TypedRateLimitingQueueConfig[struct{}]{Name: "dovetail_disruption", Clock: c.clock})
	defer queue.ShutDown()
	c.queue.Store(&queue)
	defer c.queue.Store(nil)

	gone, err := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if before.(*corev1.Pod).UID != after.(*corev1.Pod).UID { // deleted and made again while the watch was interrupted
				c.Changed()
			}
		},
		DeleteFunc: func(any) { c.Changed() },
	})
	if err != nil {
		return fmt.Errorf("watching Pods: %w", err)
	}
	defer func() { _ = c.pods.RemoveEventHandler(gone) }() // fails only for a handle that isn't its own
	if !cache.WaitForCacheSync(ctx.Done(), gone.HasSynced) {
		return nil
	}
	c.started = c.clock.Now()
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	queue.Add(struct{}{})
	for {
		k, down := queue.Get()
		if down {
			return nil
		}
		var after time.Duration
		err := panics.Catch(ctx, "disruption", func() (err error) {
			after, err = c.pass(ctx)
			return err
		})
		if err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Disruption pass failed, will retry")
			}
			queue.AddRateLimited(k)
		} else {
			queue.Forget(k)
			queue.AddAfter(k, after)
		}
		queue.Done(k)
	}
}

// pass looks at everything once:
//
//  1. what there is: pools, claims, nodes;
//  2. taints left over from passes that were cut short go;
//  3. who has to go because its time is over, and whether there is room for its pods;
//  4. who may go because it is empty, and how many of them each pool allows;
//  5. the longest quiet first, fenced, tainted and looked at again, until the budget is used up.
//
// It returns when to make the next.
func (c *Controller) pass(ctx context.Context) (time.Duration, error) {
	if why := c.hold(); why != "" {
		klog.FromContext(ctx).V(4).Info("Paused", "reason", why)
		return pollEvery, nil
	}
	s, err := c.survey(ctx)
	if err != nil {
		return 0, err
	}
	errs := c.clearStrays(ctx, s)
	next, expiring := c.expire(ctx, s)
	errs = append(errs, expiring...)
	soon, empty := c.endAllEmpty(ctx, s)
	errs = append(errs, empty...)
	if err := utilerrors.NewAggregate(errs); err != nil {
		return 0, err
	}
	return earliest(next, soon, c.brake.Wait(c.clock.Now())), nil
}

// earliest of some waits, pollEvery at the latest; 0 is no wait.
func earliest(waits ...time.Duration) time.Duration {
	out := pollEvery
	for _, w := range waits {
		if w > 0 {
			out = min(out, w)
		}
	}
	return out
}
