package bench

import (
	"context"

	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// stopwatch records by API watches when Nodes are created and pods are bound.
type stopwatch struct {
	*env
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	nodes []time.Time // when Nodes were created
	bound []time.Time // when pods were bound, in that order
	seen  map[types.UID]bool
	err   error
	grown chan struct{} // closed and replaced when bound has grown
}

// watch starts a stopwatch; what exists already doesn't count.
func (e *env) watch() *stopwatch {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	w := &stopwatch{env: e, cancel: cancel, seen: map[types.UID]bool{}, grown: make(chan struct{})}
	nodes, err := e.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	w.wg.Go(func() {
		w.follow(ctx, nodes.ResourceVersion, e.kube.CoreV1().Nodes().Watch)
	})
	w.wg.Go(func() {
		w.follow(ctx, nodes.ResourceVersion, e.kube.CoreV1().Pods("default").Watch)
	})
	return w
}

// follow observes events until ctx ends. The API server drops watchers that can't keep up for a moment, which happens when CPUs are
// scarce; then follow continues from the last version.
func (w *stopwatch) follow(ctx context.Context, version string, start func(context.Context, metav1.ListOptions) (watch.Interface, error)) {
	for ctx.Err() == nil {
		events, err := start(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			w.fail(err)
			return
		}
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				w.fail(apierrors.FromObject(event.Object))
				break
			}
			version = event.Object.(metav1.Object).GetResourceVersion()
			w.observe(event, time.Now())
		}
		events.Stop()
	}
}

func (w *stopwatch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.grow()
}

func (w *stopwatch) observe(event watch.Event, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o := event.Object.(type) {
	case *corev1.Node:
		if event.Type == watch.Added {
			w.nodes = append(w.nodes, now)
		}
	case *corev1.Pod:
		if o.Spec.NodeName != "" && event.Type != watch.Deleted && !w.seen[o.UID] {
			w.seen[o.UID] = true
			w.bound = append(w.bound, now)
			w.grow()
		}
	}
}

func (w *stopwatch) grow() {
	close(w.grown)
	w.grown = make(chan struct{})
}

// untilBound returns when n pods are bound.
func (w *stopwatch) untilBound(n int) {
	w.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		w.mu.Lock()
		have, err, grown := len(w.bound), w.err, w.grown
		w.mu.Unlock()
		if err != nil {
			w.Fatal(err)
		}
		if have >= n {
			return
		}
		select {
		case <-grown:
		case <-limit.C:
			w.Fatalf("%d of %d pods are bound after %v", have, n, patience)
		}
	}
}

// stop ends the watches. Times may be read afterwards.
func (w *stopwatch) stop() {
	w.cancel()
	w.wg.Wait()
}
