package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// watcher enqueues the claims and Nodes that a change of a Node or a pod concerns.
type watcher struct {
	nodes     *nodes
	pods      cache.SharedIndexInformer
	podsSeen  cache.ResourceEventHandlerRegistration
	index     *claimIndex
	podEvents *podEvents
	queue     *queue
	clock     clock.PassiveClock
}

// start watches Nodes until stop is called, and returns when the handlers of Nodes and Pods have seen everything that exists.
func (w *watcher) start(ctx context.Context) (stop func(), err error) {
	nodes, err := w.nodes.informer.AddEventHandler(w.handleNodes())
	if err != nil {
		return nil, fmt.Errorf("watching Nodes: %w", err)
	}
	stop = func() { _ = w.nodes.informer.RemoveEventHandler(nodes) } // fails only for a registration of another informer
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, w.podsSeen.HasSynced) {
		stop()
		return nil, fmt.Errorf("waiting for Nodes and Pods: %w", context.Cause(ctx))
	}
	return stop, nil
}

func (w *watcher) handleNodes() cache.ResourceEventHandler {
	return observe.Changes(func(before, now *corev1.Node) { w.nodeChanged(cmp.Or(now, before)) })
}

func (w *watcher) handlePods() cache.ResourceEventHandler {
	h := observe.Changes(w.podChanged)
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				h.OnAdd(obj, false)
			}
		},
		UpdateFunc: h.OnUpdate,
		DeleteFunc: h.OnDelete,
	}
}

// nodeChanged enqueues what a Node concerns.
func (w *watcher) nodeChanged(node *corev1.Node) {
	names := w.index.find(node.Spec.ProviderID, node.Name)
	if node.Spec.ProviderID == "" {
		// It may be the Node of one of our claims under another name than expected; the Node that was created ahead has the same address.
		if ip := objects.InternalIP(node); ip != "" {
			for _, other := range w.nodes.indexed(objects.IndexNodesByInternalIP, ip) {
				names = append(names, w.index.find(other.Spec.ProviderID, other.Name)...)
			}
		}
	}
	for _, name := range names {
		w.queue.add(key{claim: name})
	}
	if w.nodes.finalized(node) && node.DeletionTimestamp != nil && len(w.index.of(node)) == 0 {
		w.queue.add(key{node: node.Name})
	}
}

// podChanged enqueues the claim of a pod's node when the change matters to it: a pod was bound, is ending or is gone.
func (w *watcher) podChanged(before, after *corev1.Pod) {
	node, counts := podEvent(before, after)
	claims := w.index.find("", node)
	if node == "" || len(claims) == 0 {
		return
	}
	if counts {
		w.podEvents.put(node, w.clock.Now().Truncate(time.Second))
	}
	for _, name := range claims {
		w.queue.add(key{claim: name})
	}
}
