// Package buffers resolves CapacityBuffers (autoscaling.x-k8s.io/v1beta1): which pods their chunks are like, and how many of them are wanted. It writes their
// status. It keeps no capacity: the ledger does, and pkg/provisioning plans for it (docs/design/buffers.md).
package buffers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Store reads CapacityBuffers from memory and writes their status.
type Store interface {
	// Buffers returns all of them. known: the API server has listed them, or it serves none (their definition isn't installed, or reading is forbidden).
	Buffers() (all []*autoscalingv1beta1.CapacityBuffer, known bool)
	SaveBufferStatus(ctx context.Context, base, changed *autoscalingv1beta1.CapacityBuffer) error
}

// Chunks keeps the capacity of the buffers. Its methods return at once.
type Chunks interface {
	SetBuffers(all []ledger.Buffer)
	// Report returns what has become of the buffers, and why chunks have no capacity, by buffer.
	Report() (all []ledger.BufferState, why map[types.UID]string)
}

// Config holds the parts of a Controller. All are required.
type Config struct {
	// Kube reads pod templates and workloads from the API server.
	Kube   kubernetes.Interface
	Store  Store
	Chunks Chunks
	Clock  clock.WithTicker
	// Ours reports whether pods of that scheduler are planned for.
	Ours func(scheduler string) bool
	// Several: other Dovetails may plan for pods of other schedulers, and answer their buffers.
	Several bool
	// Admit changes a pod as the API server's admission does.
	Admit func(*corev1.Pod)
	// Class returns the class of a pod; the error says why none can be planned for.
	Class func(*corev1.Pod) (*capacity.Class, error)
	// Hold returns why nothing may be written because another controller owns the buffers, or nil.
	Hold func() error
}

const (
	// resync is how often templates and workloads are read again, and chunks looked at, if nothing is heard of a change (as in Karpenter).
	resync = 30 * time.Second
	// firstTry is how often resolving is tried again until all buffers could be read.
	firstTry = time.Second
	// gather is for how long changes are collected: buffers may be created and deleted in numbers.
	gather = 300 * time.Millisecond
)

// Controller resolves buffers and writes their status. One goroutine does both.
type Controller struct {
	Config
	changed  chan struct{} // a buffer has changed
	reported chan struct{} // chunks have been looked at
	resolved map[types.UID]*resolution
	counted  counted
}

// New returns a Controller that does nothing before Run.
func New(cfg Config) *Controller {
	return &Controller{Config: cfg, changed: make(chan struct{}, 1), reported: make(chan struct{}, 1), resolved: map[types.UID]*resolution{}, counted: counted{}}
}

// Changed hears that a buffer was added, changed or deleted. Safe for concurrent use; returns at once.
func (c *Controller) Changed() { wake(c.changed) }

// Reported hears that chunks have been looked at. Safe for concurrent use; returns at once.
func (c *Controller) Reported() { wake(c.reported) }

func wake(on chan struct{}) {
	select {
	case on <- struct{}{}:
	default:
	}
}

// Run resolves buffers until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	next := time.Duration(0)
	for {
		timer := c.Clock.NewTimer(next)
		resolve := true
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		case <-c.changed:
			c.pause(ctx)
		case <-c.reported:
			c.pause(ctx)
			resolve = false
		}
		timer.Stop()
		err := panics.Catch(ctx, "buffers", func() error {
			if resolve {
				next = c.resolve(ctx)
			}
			c.tell(ctx)
			return nil
		})
		if err != nil {
			next = resync // logged by Catch
		}
	}
}

func (c *Controller) pause(ctx context.Context) {
	timer := c.Clock.NewTimer(gather)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// resolve resolves all buffers and sets them, and returns when to do so again. What can't be read for now stays as it was: a buffer whose
// template isn't found has no chunks, but one whose template the API server didn't return keeps them. Before all of them could be read once,
// none is set.
func (c *Controller) resolve(ctx context.Context) time.Duration {
	all, known := c.Store.Buffers()
	if !known || c.Hold() != nil {
		return firstTry
	}
	resolved, missing := map[types.UID]*resolution{}, false
	var wanted []ledger.Buffer
	for _, b := range all {
		if b.DeletionTimestamp != nil {
			continue
		}
		r, err := c.resolution(ctx, b)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A CapacityBuffer can't be resolved, trying again", "capacityBuffer", klog.KObj(b), "err", err)
			r = c.resolved[b.UID]
			missing = missing || r == nil
		}
		if r == nil {
			continue
		}
		resolved[b.UID] = r
		if r.class != nil && r.chunks > 0 {
			wanted = append(wanted, ledger.Buffer{UID: b.UID, Class: r.class, Chunks: int(r.chunks)})
		}
	}
	c.resolved = resolved
	if missing {
		return firstTry
	}
	c.Chunks.SetBuffers(wanted)
	return resync
}

// tell writes the status of buffers where it has changed.
func (c *Controller) tell(ctx context.Context) {
	all, known := c.Store.Buffers()
	if !known || c.Hold() != nil {
		return
	}
	states := map[types.UID]*ledger.BufferState{}
	report, why := c.Chunks.Report()
	for i := range report {
		states[report[i].UID] = &report[i]
	}
	c.counted.count(all, states)
	for _, b := range all {
		r := c.resolved[b.UID]
		if r == nil || b.DeletionTimestamp != nil {
			continue
		}
		changed := r.status(b, states[b.UID], why[b.UID], c.Clock.Now())
		if changed == nil {
			continue
		}
		if err := c.Store.SaveBufferStatus(ctx, b, changed); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Could not write a status, trying again", "capacityBuffer", klog.KObj(b), "err", err)
			// After a conflict the watch delivers a newer version; after other errors the next pass tries again.
		}
	}
}
