package simulate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// ObservedCache is the scheduler's cache and reports which nodes it has. An informer's handler or lister can't report that, because it
// may be ahead of the cache, and a pod released too early would be scheduled without the node that it is meant for.
type ObservedCache struct {
	internalcache.Cache
	observe func(before, now *corev1.Node)
}

var _ internalcache.Cache = &ObservedCache{}

// ObserveNodes replaces the scheduler's cache by an ObservedCache. It must be called before the informers start: the event handlers
// read the scheduler's field without a lock.
//
// observe is called right after the cache got a node (before is nil), got another version of it, or lost it (now is nil). For a node
// that the cache has already, a further add also comes with before nil. Calls are made one after the other, in the informer's handler
// and outside the cache's lock: observe must be O(1) and must not block, because otherwise every event of the cluster waits.
func ObserveNodes(sched *scheduler.Scheduler, observe func(before, now *corev1.Node)) {
	sched.Cache = &ObservedCache{Cache: sched.Cache, observe: observe}
}

// AddNode implements internalcache.Cache.
func (c *ObservedCache) AddNode(logger klog.Logger, node *corev1.Node) *framework.NodeInfo {
	info := c.Cache.AddNode(logger, node)
	c.observe(nil, node)
	return info
}

// UpdateNode implements internalcache.Cache.
func (c *ObservedCache) UpdateNode(logger klog.Logger, before, now *corev1.Node) *framework.NodeInfo {
	info := c.Cache.UpdateNode(logger, before, now)
	c.observe(before, now)
	return info
}

// RemoveNode implements internalcache.Cache. The cache doesn't have the node afterwards, even if it returns an error.
func (c *ObservedCache) RemoveNode(logger klog.Logger, node *corev1.Node) error {
	err := c.Cache.RemoveNode(logger, node)
	c.observe(node, nil)
	return err
}
