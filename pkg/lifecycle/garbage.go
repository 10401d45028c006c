package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	garbageAge   = 30 * time.Second
	garbageFirst = 10 * time.Second // between the first garbageRuns runs
	garbageRuns  = 20
	garbageEvery = 2 * time.Minute
)

// collect terminates instances that no claim owns, deletes Nodes without claim and instance, and enqueues claims whose instance isn't
// listed any more or has left its capacity reservation. It returns when to collect next; an error doesn't change that.
func (c *Controller) collect(ctx context.Context) (time.Duration, error) {
	c.collected++
	next := garbageEvery
	if c.collected <= garbageRuns {
		next = garbageFirst
	}
	if err := c.collectOnce(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Garbage collection failed, will retry")
	}
	return next, nil
}

func (c *Controller) collectOnce(ctx context.Context) error {
	instances, err := c.cloud.List(ctx)
	if err != nil {
		return err
	}
	var cached karpv1.NodeClaimList
	if err := c.claims.List(ctx, &cached); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	claims := newClaimSet(cached.Items)
	listed := map[string]bool{}
	for i := range instances {
		listed[instances[i].ProviderID] = true
	}
	for id, claim := range claims.byProvider {
		if !listed[id] {
			c.enqueue(key{claim: claim.Name}) // liveness checks it, if its node isn't Ready
		}
	}

	if err := c.lapse(ctx, instances, claims); err != nil {
		klog.FromContext(ctx).Error(err, "Could not relabel nodes whose capacity reservation has ended as on-demand, will retry")
	}
	now := c.clock.Now()
	c.tidyMemory(claims, now)
	nodes, err := c.nodeList.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	if len(orphans(instances, claims, now)) == 0 && len(shells(nodes, listed, claims)) == 0 {
		return nil
	}
	// The cache may be behind; terminations are decided on what the API says now.
	if claims, err = c.liveClaims(ctx); err != nil {
		return err
	}
	var errs []error
	for _, inst := range orphans(instances, claims, now) {
		if c.brake != nil && !c.brake.Take(now) {
			// So many at once look like a mistake rather than like accidents.
			klog.FromContext(ctx).Info("No more instances without NodeClaim are terminated within this minute", "perMinute", c.brake.PerMinute())
			break
		}
		errs = append(errs, c.collectInstance(ctx, inst))
	}
	for _, n := range shells(nodes, listed, claims) {
		klog.FromContext(ctx).Info("Deleting a Node without NodeClaim and instance", "node", klog.KObj(n), "providerID", n.Spec.ProviderID)
		errs = append(errs, c.deleteNode(ctx, n))
	}
	return utilerrors.NewAggregate(errs)
}

// shells returns managed Nodes with our finalizer that have neither claim nor instance nor a Ready kubelet. The deletion of such a Node
// starts its termination, which looks for the instance once more.
func shells(nodes []*corev1.Node, listed map[string]bool, claims claimSet) []*corev1.Node {
	var out []*corev1.Node
	for _, n := range nodes {
		if finalized(n) && n.DeletionTimestamp == nil && !objects.Ready(n) && !listed[n.Spec.ProviderID] && claims.byProvider[n.Spec.ProviderID] == nil {
			out = append(out, n)
		}
	}
	return out
}

// orphans returns the instances that no claim owns or will own (capacity.InstanceOwners), old enough for their launch to have been
// recorded.
func orphans(instances []capacity.Instance, claims claimSet, now time.Time) []capacity.Instance {
	var out []capacity.Instance
	for _, inst := range instances {
		// A deleted claim without instance finds its own instance; a failed launch may be repeated with the same token.
		if !inst.Ended() && now.Sub(inst.LaunchedAt) >= garbageAge && !claims.Owned(&inst) && !claims.Awaited(&inst) {
			out = append(out, inst)
		}
	}
	return out
}

// collectInstance terminates one instance. If its kubelet has registered, its Node gets our finalizer, and the Node's deletion drains it
// before the instance ends: pods may run there if a user removed the claim by force, or deleted it before its instance was known.
func (c *Controller) collectInstance(ctx context.Context, inst capacity.Instance) error {
	nodes := c.nodesByProviderID(inst.ProviderID)
	for _, n := range nodes {
		switch {
		case capacity.OfAnotherProvider(n):
			return nil // and so is the instance, whatever its tags say
		case finalized(n) && n.DeletionTimestamp != nil:
			c.enqueue(key{node: n.Name})
			return nil
		case finalized(n) || capacity.Managed(n) && Posted(n) && n.DeletionTimestamp == nil:
			klog.FromContext(ctx).Info("Deleting a Node whose NodeClaim is gone", "node", klog.KObj(n), "instance", inst.ID)
			if _, err := c.patchNode(ctx, n.Name, n.UID, func(n *corev1.Node) { addFinalizer(n) }); err != nil {
				return err
			}
			return c.deleteNode(ctx, n)
		}
	}
	err := c.cloud.Terminate(ctx, inst.ID)
	if err != nil && !errors.Is(err, capacity.ErrInstanceNotFound) {
		return fmt.Errorf("an instance that no NodeClaim owns: %w", err)
	}
	collections.Inc()
	klog.FromContext(ctx).Info("Terminated an instance that no NodeClaim owns", "instance", inst.ID, "launchBatch", inst.LaunchBatch, "claim", inst.Claim)
	for _, n := range nodes {
		if capacity.Managed(n) {
			if err := c.deleteNode(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// sightingMemory is how long an instance that no claim owns is remembered after it was last looked up: longer than any decision about it
// takes.
const sightingMemory = 15 * time.Minute

// tidyMemory forgets pods and instances that no decision needs any more.
func (c *Controller) tidyMemory(claims claimSet, now time.Time) {
	owned := map[string]bool{}
	for id := range claims.byProvider {
		owned[capacity.InstanceID(id)] = true
	}
	c.sightings.prune(now.Add(-sightingMemory), owned)
	c.evictions.prune(now)
}
