package simulate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// ObservedCache is the scheduler's cache, telling which nodes it has. An informer's handler or lister can't tell that:
// it may be ahead of the cache, and a pod let go too early is scheduled without the node it was to go to.
type ObservedCache struct {
	internalcache.Cache
	observe func(before, now *corev1.Node)
}

var _ internalcache.Cache = &ObservedCache{}

// ObserveNodes puts an ObservedCache in the place of the scheduler's cache. It must be called before the informers
// start: the event handlers read the scheduler's field without a lock.
//
// observe is called right after the cache got a node (before is nil), got another version of it, or lost it (now is
// nil); a node that was there before it was said to be new comes with a nil before, too. Calls come one after the other,
// in the informer's handler and outside the cache's lock: observe must be O(1) and must not block, or every event of
// the cluster waits.
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

// RemoveNode implements internalcache.Cache. Whether or not it fails, the cache doesn't have the node afterwards.
func (c *ObservedCache) RemoveNode(logger klog.Logger, node *corev1.Node) error {
	err := c.Cache.RemoveNode(logger, node)
	c.observe(node, nil)
	return err
}
