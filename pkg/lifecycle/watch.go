package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// watcher enqueues the claims and Nodes that a change of a Node or a pod concerns.
type watcher struct {
	nodes     *nodes
	pods      cache.SharedIndexInformer
	index     *claimIndex
	podEvents *podEvents
	queue     *queue
	clock     clock.PassiveClock
}

// start watches Nodes and Pods until stop is called, and returns when the handlers have seen everything that exists.
func (w *watcher) start(ctx context.Context) (stop func(), err error) {
	nodes, err := w.nodes.informer.AddEventHandler(w.handleNodes())
	if err != nil {
		return nil, fmt.Errorf("watching Nodes: %w", err)
	}
	pods, err := w.pods.AddEventHandler(w.handlePods())
	if err != nil {
		_ = w.nodes.informer.RemoveEventHandler(nodes) // added a moment ago: can't fail
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	stop = func() {
		// Both fail only for registrations of another informer.
		_ = w.nodes.informer.RemoveEventHandler(nodes)
		_ = w.pods.RemoveEventHandler(pods)
	}
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
		stop()
		return nil, fmt.Errorf("waiting for Nodes and Pods: %w", context.Cause(ctx))
	}
	return stop, nil
}

func (w *watcher) handleNodes() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { w.nodeChanged(obj) },
		UpdateFunc: func(old, obj any) {
			if replaced(old, obj) {
				w.nodeChanged(old) // it may belong to another claim
			}
			w.nodeChanged(obj)
		},
		DeleteFunc: func(obj any) { w.nodeChanged(obj) },
	}
}

func (w *watcher) handlePods() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				w.podChanged(nil, obj)
			}
		},
		UpdateFunc: func(old, obj any) {
			if replaced(old, obj) {
				w.podChanged(old, nil)
				old = nil
			}
			w.podChanged(old, obj)
		},
		DeleteFunc: func(obj any) { w.podChanged(obj, nil) },
	}
}

// nodeChanged enqueues what a Node (or its tombstone) concerns.
func (w *watcher) nodeChanged(obj any) {
	node, ok := untomb(obj).(*corev1.Node)
	if !ok {
		return
	}
	names := w.index.find(node.Spec.ProviderID, node.Name)
	if node.Spec.ProviderID == "" {
		// It may be one of ours under another name; the Node created ahead has the same address.
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
func (w *watcher) podChanged(old, obj any) {
	before, _ := untomb(old).(*corev1.Pod)
	after, _ := untomb(obj).(*corev1.Pod)
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

// replaced reports whether an update stands for the deletion of one object and the creation of another of the same name: informers report
// that when it happened while the watch was interrupted.
func replaced(old, obj any) bool {
	before, ok := old.(metav1.Object)
	after, is := obj.(metav1.Object)
	return ok && is && before.GetUID() != after.GetUID()
}

func untomb(obj any) any {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return t.Obj
	}
	return obj
}
