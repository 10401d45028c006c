package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

const (
	workers = 64
	// holdRetry is how often a paused claim is checked again.
	holdRetry = 10 * time.Second
)

// Controller takes NodeClaims and their Nodes through the stages of the package comment. Its workers handle different keys at the same time:
// what they share is the queue, the index, and memories that lock themselves.
type Controller struct {
	hold   func() error
	clock  clock.WithTicker
	claims claims
	nodes  *nodes
	index  *claimIndex
	// alive are the stages of a claim, deleted those of a deleted one.
	alive, deleted []stage
	unclaimed      *unclaimed
	garbage        *garbage
	drifting       *drifting
	watcher        *watcher
	queue          *queue
	// forgotten drops what stages remember about a deleted claim.
	forgotten func(claim, providerID, nodeName string, nodes []*corev1.Node)
}

// New builds a Controller and adds the indexes that it needs, and a handler of pods, to the informers. It starts nothing and makes no
// calls.
func New(cfg Config) (_ *Controller, err error) {
	core, storage := cfg.Informers.Core().V1(), cfg.Informers.Storage().V1()
	// Requested here so that the factory's owner starts these informers with the others.
	core.PersistentVolumes().Informer()
	core.PersistentVolumeClaims().Informer()
	storage.VolumeAttachments().Informer()
	seen := &sightings{cloud: cfg.Cloud, clock: cfg.Clock}
	c := &Controller{
		hold: cfg.Hold, clock: cfg.Clock, claims: claims{cfg.Claims}, index: newClaimIndex(), queue: &queue{},
		nodes: &nodes{kube: cfg.Kube, informer: core.Nodes().Informer(), lister: core.Nodes().Lister(), sightings: seen, nodeClass: cfg.NodeClass},
	}
	c.watcher = &watcher{nodes: c.nodes, pods: core.Pods().Informer(), index: c.index, podEvents: &podEvents{}, queue: c.queue, clock: cfg.Clock}
	if err := c.nodes.addIndexes(); err != nil {
		return nil, err
	}
	if err := pods.Index(c.watcher.pods); err != nil {
		return nil, err
	}
	if c.watcher.podsSeen, err = c.watcher.pods.AddEventHandler(c.watcher.handlePods()); err != nil {
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	c.addStages(&cfg, seen)
	return c, nil
}

// ClaimChanged reports that a NodeClaim was created, changed or deleted. Safe for concurrent use; ignored while the Controller isn't
// running, because Run begins with all claims.
func (c *Controller) ClaimChanged(name string) { c.queue.add(key{claim: name}) }

// Run works until ctx ends, then waits for everything under way. The informers must have been started.
func (c *Controller) Run(ctx context.Context) error {
	// The queue has the same name as the controller in karpentermetrics: dashboards of Karpenter select both by one name.
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[key](100*time.Millisecond, time.Minute),
		workqueue.TypedRateLimitingQueueConfig[key]{Name: "nodeclaim.lifecycle", Clock: c.clock})
	c.queue.running.Store(&queue)
	defer c.queue.running.Store(nil)
	defer queue.ShutDown()

	all, err := c.allClaims(ctx)
	if err != nil {
		return err
	}
	// Indexed before Nodes are watched, so that no Node seems to have no claim.
	for i := range all.Items {
		c.index.observe(&all.Items[i])
	}
	stop, err := c.watcher.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for i := range all.Items {
		queue.Add(key{claim: all.Items[i].Name})
	}
	queue.Add(key{})
	queue.Add(key{pools: true})

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
	start := c.clock.Now()
	err := panics.Catch(klog.NewContext(ctx, logger), "lifecycle", func() (err error) {
		after, err = c.reconcile(klog.NewContext(ctx, logger), k)
		return err
	})
	karpentermetrics.Reconciled("nodeclaim.lifecycle", c.clock.Since(start), after, err)
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
	if err := c.hold(); err != nil {
		klog.FromContext(ctx).V(4).Info("Paused", "reason", err.Error())
		return holdRetry, nil
	}
	switch {
	case k.claim != "":
		return c.reconcileClaim(ctx, k.claim)
	case k.node != "":
		return c.unclaimed.reconcile(ctx, k.node)
	case k.pools:
		return c.drifting.round(ctx)
	default:
		return c.garbage.collect(ctx)
	}
}

// Disrupt taints a Node that may be disrupted soon, so that no new pods are scheduled there; nothing else changes.
func (c *Controller) Disrupt(ctx context.Context, node *corev1.Node) error {
	_, err := c.nodes.patch(ctx, node.Name, node.UID, func(n *corev1.Node) {
		dropTaint(n, karpv1.DisruptedTaintKey) // the same key may have another effect
		setTaint(n, karpv1.DisruptedNoScheduleTaint)
	})
	return err
}

// Undisrupt removes Disrupt's taint, and the label that keeps load balancers off if the end of a node has set it: the node stays, and is to get
// traffic. It doesn't change a Node that is gone or being deleted.
func (c *Controller) Undisrupt(ctx context.Context, node *corev1.Node) error {
	_, err := c.nodes.patch(ctx, node.Name, node.UID, func(n *corev1.Node) {
		if n.DeletionTimestamp == nil {
			dropTaint(n, karpv1.DisruptedTaintKey)
			if n.Labels[corev1.LabelNodeExcludeBalancers] == excludedAtEnd {
				delete(n.Labels, corev1.LabelNodeExcludeBalancers)
			}
		}
	})
	if gone(err) {
		return nil
	}
	return err
}

// LastPodEvent returns when a pod was last bound to a node, began to end there or left it, as far as this process has seen; zero: never. It
// may be later than what the claim's status says.
func (c *Controller) LastPodEvent(node string) time.Time {
	at, _ := c.watcher.podEvents.get(node)
	return at
}
