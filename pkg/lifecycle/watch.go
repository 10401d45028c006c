package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// watch listens to Nodes and Pods until stop is called, and returns when everything that exists has been heard of.
func (c *Controller) watch(ctx context.Context) (stop func(), err error) {
	nodes, err := c.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.nodeChanged(obj) },
		UpdateFunc: func(_, obj any) { c.nodeChanged(obj) },
		DeleteFunc: func(obj any) { c.nodeChanged(obj) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching Nodes: %w", err)
	}
	pods, err := c.pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				c.podChanged(nil, obj)
			}
		},
		UpdateFunc: func(old, obj any) { c.podChanged(old, obj) },
		DeleteFunc: func(obj any) { c.podChanged(obj, nil) },
	})
	if err != nil {
		_ = c.nodes.RemoveEventHandler(nodes) // it was added a moment ago
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	stop = func() {
		// Both fail only on handles that are not theirs.
		_ = c.nodes.RemoveEventHandler(nodes)
		_ = c.pods.RemoveEventHandler(pods)
	}
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
		stop()
		return nil, fmt.Errorf("waiting for Nodes and Pods: %w", context.Cause(ctx))
	}
	return stop, nil
}

// podChanged wakes the claim of a pod's node when that matters to it: something came, is ending or has gone.
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

func untomb(obj any) any {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return t.Obj
	}
	return obj
}
