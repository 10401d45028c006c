package spending

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

const (
	// writeEvery is how often the guard's records are written, if they have changed.
	writeEvery = time.Second
	// askEvery is how often the API server is asked with a dry run whether it would accept a Node that it has refused.
	askEvery = time.Minute
	// countEvery is how often the cost of nodes is counted.
	countEvery = 15 * time.Second
)

// Claims are the NodeClaims and pools as Writer needs them.
type Claims interface {
	// Claim returns the claim of that name, or nil.
	Claim(name string) *capacity.Claim
	Pools(types func(nodeClass string) ([]*capacity.InstanceType, error)) []*capacity.Pool
}

// WriterParts are the neighbours of a Writer.
type WriterParts struct {
	Clock  clock.WithTicker
	Claims Claims
	// All returns all NodeClaims by name, those that informers don't show yet included.
	All func() map[string]*capacity.Claim
	// Paused reports whether nothing may be written now.
	Paused func() bool
	// TryNode checks with a dry run whether a Node could be created.
	TryNode func(ctx context.Context, n *corev1.Node) error
	// Each calls f for 0 to n-1, some at once, and returns when all have returned.
	Each func(ctx context.Context, n int, f func(i int))
}

// Writer writes what the guard has decided: its records, and that instances have served. It also asks the API server about Nodes that were
// refused, and sets the metrics of what nodes cost. One goroutine uses it, that of Run.
type Writer struct {
	WriterParts
	guard   *Guard
	written map[guard.Owner]string
	counted map[string]bool // pools with metrics of cost
}

// NewWriter returns the writer of a guard.
func NewWriter(g *Guard, p WriterParts) *Writer {
	return &Writer{WriterParts: p, guard: g, written: map[guard.Owner]string{}, counted: map[string]bool{}}
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	tick := w.Clock.NewTicker(writeEvery)
	defer tick.Stop()
	var counted time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		if w.Paused() {
			continue
		}
		w.WriteRecords(ctx)
		w.writeServed(ctx)
		w.RetryNodes(ctx)
		if now := w.Clock.Now(); now.Sub(counted) >= countEvery {
			counted = now
			w.CountCost()
		}
	}
}

// WriteRecords writes the records that have changed. A failed write is repeated.
func (w *Writer) WriteRecords(ctx context.Context) {
	for o, text := range w.takeRecords() {
		if before, known := w.written[o]; known && before == text {
			continue // unchanged; what an earlier process wrote is unknown here, and is overwritten
		}
		if err := w.guard.records.RecordGuard(ctx, o, text); err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not keep the spending guard's record; trying again", "nodePool", o.Pool, "nodeClass", o.Class)
			}
			w.recordLater(o)
			continue
		}
		w.written[o] = text
	}
}

// takeRecords returns the records that have changed since the last call.
func (w *Writer) takeRecords() map[guard.Owner]string {
	g := w.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	texts := map[guard.Owner]string{}
	delete(g.state.dirty, guard.Owner{}) // breakers of NodeClaims that name no pool: there is no object to write to
	for o := range g.state.dirty {
		texts[o] = g.state.breakers.Encode(o, g.clock.Now())
	}
	clear(g.state.dirty)
	return texts
}

// recordLater marks a record to be written.
func (w *Writer) recordLater(o guard.Owner) {
	g := w.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.dirty[o] = true
}

// writeServed records on claims that their instances have served.
func (w *Writer) writeServed(ctx context.Context) {
	g := w.guard
	g.mu.Lock()
	names := slices.Sorted(maps.Keys(g.state.served))
	clear(g.state.served)
	g.mu.Unlock()
	w.Each(ctx, len(names), func(i int) {
		c := w.Claims.Claim(names[i])
		if c == nil || c.Served || c.Deleting {
			return
		}
		if err := g.records.RecordServed(ctx, c); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Could not record that a machine has done work; trying again", "nodeClaim", c.Name, "err", err)
			g.mu.Lock()
			g.state.served[c.Name] = true
			g.mu.Unlock()
		}
	})
}

// RetryNodes checks with a dry run whether Nodes that were refused would be accepted now. That costs no instance.
func (w *Writer) RetryNodes(ctx context.Context) {
	g, now := w.guard, w.guard.clock.Now()
	for k, node := range w.refusedNodes(now) {
		// AlreadyExists is the answer only after admission has accepted the Node.
		if err := w.TryNode(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
			klog.FromContext(ctx).V(3).Info("A Node like one that was refused is still refused", "node", node.Name, "err", err)
			continue
		}
		g.mu.Lock()
		g.state.breakers.Accepted(k, now)
		delete(g.probing.refused, k)
		delete(g.probing.idle, k)
		g.state.dirty[guard.OwnerOf(k)] = true
		g.mu.Unlock()
	}
}

// refusedNodes returns the Nodes that were refused, by breaker, if it is time to ask about them, and forgets those of breakers that have
// closed.
func (w *Writer) refusedNodes(now time.Time) map[guard.Key]*corev1.Node {
	g := w.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.probing.asked) < askEvery {
		return nil
	}
	g.probing.asked = now
	ask := map[guard.Key]*corev1.Node{}
	for _, b := range g.state.breakers.Breakers() {
		if node := g.probing.refused[b.Key]; node != nil && b.Open() && b.Refused {
			ask[b.Key] = node
		}
	}
	maps.DeleteFunc(g.probing.refused, func(k guard.Key, _ *corev1.Node) bool { return ask[k] == nil })
	return ask
}

// CountCost sets the metrics of what nodes cost, and of how many breakers pause launches.
func (w *Writer) CountCost() {
	sum := w.guard.Cost(w.All())
	there := map[string]bool{}
	for _, p := range w.Claims.Pools(w.guard.types) {
		there[p.Name] = true
	}
	for _, of := range []map[string]float64{sum.Running, sum.InFlight} {
		for pool := range of {
			w.counted[pool] = true
		}
	}
	for pool := range w.counted {
		running, some := sum.Running[pool]
		inFlight, more := sum.InFlight[pool]
		dollarsPerHour.WithLabelValues(pool, "running").Set(running)
		dollarsPerHour.WithLabelValues(pool, "in_flight").Set(inFlight)
		if !some && !more && !there[pool] {
			delete(w.counted, pool) // package poolmetrics deletes its series
		}
	}
	breakersOpen.Set(float64(w.pausing()))
}

// pausing returns how many breakers pause launches. Breakers of repairs don't.
func (w *Writer) pausing() (open int) {
	g := w.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.state.breakers.Breakers() {
		if b.Open() && !b.Trial && !b.Key.Repair() {
			open++
		}
	}
	return open
}
