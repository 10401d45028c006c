package disruption

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/interruptions"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/surge"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Config holds the parts of a Controller. All are required, except those that say what nil means and what only Consolidation needs.
type Config struct {
	Kube      kubernetes.Interface
	Informers informers.SharedInformerFactory
	// Claims reads NodeClaims and NodePools from a cache and deletes claims; Live reads past the cache.
	Claims client.Client
	Live   client.Reader
	Fence  Fence
	Nodes  Nodes
	// Needed reports whether capacity for CapacityBuffers is kept on the node, and whether that is known yet; nil: none is kept.
	Needed func(node string) (needed, known bool)
	// Replacements plans capacity for a node's pods before the node is drained.
	Replacements Replacements
	// NodeClass is the kind of node class from which nodes are launched; nil: only the pools tell what new nodes come from.
	NodeClass *cloudprovider.NodeClassKind
	// Consolidation plans which used nodes to empty; nil: used nodes are kept. It calls Changed when there is a result.
	Consolidation Consolidation
	// Class returns the equivalence class of the pod that replaces this one; the error says why no capacity can be planned for it.
	Class func(pod *corev1.Pod) (*capacity.Class, error)
	// Ours reports whether our scheduler places the pod.
	Ours func(pod *corev1.Pod) bool
	// Price returns what a claim's node costs now; consolidation.Candidate.Price says what that includes.
	Price func(claim *karpv1.NodeClaim) (dollarsPerHour float64, known bool)
	// Taken returns when the capacity that a claim's instance runs on is taken back, and why; false: never, or that is unknown.
	Taken func(claim *karpv1.NodeClaim) (at time.Time, why string, ok bool)
	// Health tells which instances fail the cloud's checks. HoldsRepair returns why the spending guard stops the repair of a node, or nil; it gets
	// the node's pool and when the node was launched. Both may be left out.
	Health      cloudprovider.Health
	HoldsRepair func(pool string, launched time.Time) error
	// Lost is called for a claim whose instance the cloud takes back for lack of capacity, Leaving for one whose capacity it recommends to leave;
	// both perhaps more than once.
	Lost, Leaving func(claim *karpv1.NodeClaim)
	// Ending is called with the reason before a claim is deleted. It returns at once.
	Ending func(ctx context.Context, claim, reason string)
	// CauseKnown reports whether Ending knows why an instance has ended that Dovetail has not terminated. It returns at once. While the
	// answer is false, the claim isn't deleted and CauseKnown is called again, so it must not stay false. nil: the cause is always known.
	CauseKnown func(ctx context.Context, claim string) bool
	// Brake bounds how many nodes are terminated per minute.
	Brake *brake.Brake
	// DryRun: report by event and log which nodes would be terminated, for whatever reason of Dovetail's own, and terminate none.
	DryRun bool
	// Recount, if set, is called when the method Spare has another answer for a pool.
	Recount func()
	// Hold returns why nothing may be disrupted now, or nil.
	Hold     func() error
	Recorder events.EventRecorder
	Clock    clock.WithTicker
}

// gatherFor is how long changes are collected before they trigger a pass.
const gatherFor = time.Second

// restPerNode is how long no pass is made after another, for each node. A pass looks at all nodes and their pods, which takes some 80 µs of CPU time a
// node; where pods end all the time one pass would follow the other, and with 15,000 nodes half a core would do nothing else.
const restPerNode = 500 * time.Microsecond

// retryMost is the longest time between failed passes: capacity that is reserved for replacements, and for moves that have not begun, is
// released after a minute without a pass.
const retryMost = 30 * time.Second

// Controller makes the passes of the package comment.
type Controller struct {
	*interruptions.Recorder
	passes   passes          // only the goroutine of Run makes them
	surges   *surge.Requests // nil: without Consolidation
	pods     cache.SharedIndexInformer
	podsSeen cache.ResourceEventHandlerRegistration
	clock    clock.WithTicker
	queue    atomic.Pointer[workqueue.TypedRateLimitingInterface[struct{}]]
}

// New builds a Controller, and adds an index and a handler to the informer of pods, which must not have been started. It starts nothing and makes no
// calls.
func New(cfg Config) (*Controller, error) {
	core := cfg.Informers.Core().V1()
	core.Nodes().Informer() // requested here so that the factory's owner starts this informer with the others
	if cfg.Consolidation != nil {
		core.Namespaces().Informer()
		cfg.Informers.Policy().V1().PodDisruptionBudgets().Informer()
		cfg.Informers.Apps().V1().ReplicaSets().Informer()
		core.PersistentVolumeClaims().Informer()
	}
	c := &Controller{pods: core.Pods().Informer(), clock: cfg.Clock}
	if cfg.Consolidation != nil {
		c.surges = surge.New(cfg.Kube, cfg.Informers, cfg.Clock)
	}
	if err := pods.Index(c.pods); err != nil {
		return nil, err
	}
	var err error
	if c.podsSeen, err = c.pods.AddEventHandler(observe.Changes(c.podChanged)); err != nil {
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	c.Recorder = interruptions.New(interruptions.Config{Claims: cfg.Claims, Recorder: cfg.Recorder, Clock: cfg.Clock, LeadMost: leadMost, Lost: cfg.Lost, Leaving: cfg.Leaving, Changed: c.Changed})
	c.passes = newPasses(&cfg, c.pods.GetIndexer(), c.surges)
	return c, nil
}

// Changed triggers a pass soon. Safe for concurrent use; ignored while the Controller isn't running, because Run begins with a pass.
func (c *Controller) Changed() {
	if q := c.queue.Load(); q != nil {
		(*q).AddAfter(struct{}{}, gatherFor)
	}
}

func (c *Controller) podChanged(_, after *corev1.Pod) {
	if after == nil {
		c.Changed()
	}
}

// Run makes passes until ctx ends. The informers must have been started.
func (c *Controller) Run(ctx context.Context) error {
	// The queue has the same name as the controller in karpentermetrics: dashboards of Karpenter select both by one name.
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[struct{}](time.Second, retryMost),
		workqueue.TypedRateLimitingQueueConfig[struct{}]{Name: "disruption", Clock: c.clock})
	defer queue.ShutDown()
	c.queue.Store(&queue)
	defer c.queue.Store(nil)

	if !cache.WaitForCacheSync(ctx.Done(), c.podsSeen.HasSynced) {
		return nil
	}
	if c.surges != nil {
		asking, end := context.WithCancel(ctx)
		var asks sync.WaitGroup
		asks.Go(func() { c.surges.Run(asking) })
		defer asks.Wait()
		defer end()
	}
	watched := c.clock.Now()
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	queue.Add(struct{}{})
	var rested time.Time // from then on a pass may be made
	for {
		k, down := queue.Get()
		if down {
			return nil
		}
		start := c.clock.Now()
		if wait := rested.Sub(start); wait > 0 {
			queue.AddAfter(k, wait)
			queue.Done(k)
			continue
		}
		var after, rest time.Duration
		err := panics.Catch(ctx, "disruption", func() (err error) {
			after, rest, err = c.passes.run(ctx, watched)
			return err
		})
		karpentermetrics.Reconciled("disruption", c.clock.Since(start), after, err)
		rested = c.clock.Now().Add(rest)
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
