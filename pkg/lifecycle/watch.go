package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// watch watches Nodes and Pods until stop is called, and returns when the handlers have seen everything that exists.
func (c *Controller) watch(ctx context.Context) (stop func(), err error) {
	nodes, err := c.nodes.AddEventHandler(c.handleNodes())
	if err != nil {
		return nil, fmt.Errorf("watching Nodes: %w", err)
	}
	pods, err := c.pods.AddEventHandler(c.handlePods())
	if err != nil {
		_ = c.nodes.RemoveEventHandler(nodes) // added a moment ago: can't fail
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	stop = func() {
		// Both fail only for registrations of another informer.
		_ = c.nodes.RemoveEventHandler(nodes)
		_ = c.pods.RemoveEventHandler(pods)
	}
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
		stop()
		return nil, fmt.Errorf("waiting for Nodes and Pods: %w", context.Cause(ctx))
	}
	return stop, nil
}

func (c *Controller) handleNodes() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.nodeChanged(obj) },
		UpdateFunc: func(old, obj any) {
			if replaced(old, obj) {
				c.nodeChanged(old) // it may belong to another claim
			}
			c.nodeChanged(obj)
		},
		DeleteFunc: func(obj any) { c.nodeChanged(obj) },
	}
}

func (c *Controller) handlePods() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				c.podChanged(nil, obj)
			}
		},
		UpdateFunc: func(old, obj any) {
			if replaced(old, obj) {
				c.podChanged(old, nil)
				old = nil
			}
			c.podChanged(old, obj)
		},
		DeleteFunc: func(obj any) { c.podChanged(obj, nil) },
	}
}

// podChanged enqueues the claim of a pod's node when the change matters to it: a pod was bound, is ending or is gone.
func (c *Controller) podChanged(old, obj any) {
	before, _ := untomb(old).(*corev1.Pod)
	after, _ := untomb(obj).(*corev1.Pod)
	node, counts := podEvent(before, after)
	claims := c.index.find("", node)
	if node == "" || len(claims) == 0 {
		return
	}
	if counts {
		c.podEvents.note(node, c.clock.Now())
	}
	for _, name := range claims {
		c.enqueue(key{claim: name})
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
