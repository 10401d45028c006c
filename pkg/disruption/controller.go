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

// Fence cordons a node for our own scheduler.
type Fence interface {
	// Fence returns false, and does nothing, when a pod is planned for the node, has a reservation there or is being bound. After true
	// nothing is bound there until Unfence.
	Fence(node string) bool
	Unfence(node string)
}

// Nodes keeps other schedulers off a node, and knows about its pod events.
type Nodes interface {
	Disrupt(ctx context.Context, node *corev1.Node) error
	Undisrupt(ctx context.Context, node *corev1.Node) error
	// LastPodEvent returns the last time a pod was bound to the node or left it during this process's life; zero: unknown.
	LastPodEvent(node string) time.Time
}

// Config holds the parts of a Controller. The fields that say "when set", DryRun and Hold are optional; all others are required.
type Config struct {
	Kube      kubernetes.Interface
	Informers informers.SharedInformerFactory
	// Claims reads NodeClaims and NodePools from a cache and deletes claims; Live reads past the cache.
	Claims client.Client
	Live   client.Reader
	Fence  Fence
	Nodes  Nodes
	// Replacements, when set, plans capacity for a node's pods before the node is drained.
	Replacements Replacements
	// Taken, when set, returns when the capacity that a claim's instance runs on is taken back, and why; false: never, or that is unknown.
	Taken func(claim *karpv1.NodeClaim) (at time.Time, why string, ok bool)
	// Lost, when set, is called for a claim whose instance the cloud takes back for lack of capacity, perhaps more than once.
	Lost func(claim *karpv1.NodeClaim)
	// Ending, when set, is called with the reason before a claim is deleted.
	Ending func(ctx context.Context, claim, reason string)
	// Brake bounds how many nodes are terminated per minute.
	Brake *brake.Brake
	// DryRun: report by event and log which nodes would be terminated for being empty or expired, and terminate none of them.
	DryRun bool
	// Hold, when set, returns why nothing may be disrupted now, or "".
	Hold     func() string
	Recorder events.EventRecorder
	Clock    clock.WithTicker
}

const (
	// pollEvery is how often a pass is made if nothing triggers one.
	pollEvery = 10 * time.Second
	// gatherFor is how long changes are collected before they trigger a pass.
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
	// Only Run and pass use the following fields. Their content may be lost at any moment.

	// started is since when pods have been watched.
	started time.Time
	// going holds the claims, by UID, that were deleted here and that the cache still shows without deletion timestamp.
	going map[string]bool
	// leaving holds the claims, by UID, that are being replaced: their nodes are cordoned while capacity for their pods is prepared, or are
	// draining.
	leaving map[string]*replacedNode
	// said is when a decision that a dry run doesn't carry out was last reported, by UID and reason.
	said map[string]time.Time
}

// New builds a Controller. It starts nothing and makes no calls.
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
	core.Nodes().Informer() // requested here so that the factory's owner starts this informer with the others
	if err := pods.Index(c.pods); err != nil {
		return nil, err
	}
	return c, nil
}

// Changed triggers a pass soon. Safe for concurrent use; ignored while the Controller isn't running, because Run begins with a pass.
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
			if before.(*corev1.Pod).UID != after.(*corev1.Pod).UID { // deleted and created again while the watch was interrupted
				c.Changed()
			}
		},
		DeleteFunc: func(any) { c.Changed() },
	})
	if err != nil {
		return fmt.Errorf("watching Pods: %w", err)
	}
	defer func() { _ = c.pods.RemoveEventHandler(gone) }() // fails only for a registration of another informer
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

// pass looks at the whole cluster once:
//
//  1. Read pools, claims and nodes.
//  2. Remove taints left over from interrupted passes.
//  3. Find the nodes that have to go because their time is over, and whether there is capacity for their pods.
//  4. Find the nodes that may go because they are empty, and how many of them each pool allows.
//  5. Starting with the longest empty one, cordon each, taint it and check it again, until the budget is used up.
//
// It returns when to make the next pass.
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

// earliest returns the shortest of some waits, at most pollEvery; 0 is no wait.
func earliest(waits ...time.Duration) time.Duration {
	out := pollEvery
	for _, w := range waits {
		if w > 0 {
			out = min(out, w)
		}
	}
	return out
}
