package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	garbageAge   = 30 * time.Second
	garbageFirst = 10 * time.Second // between the first garbageRuns runs
	garbageRuns  = 20
	garbageEvery = 2 * time.Minute
	garbageRest  = 2 * time.Millisecond // for each instance: to list all of thousands costs seconds of CPU time
)

// garbage collects what no claim owns: instances, and Nodes without claim and instance. Only the worker that handles the queue's zero key uses it.
type garbage struct {
	claims       client.Reader // from a cache
	live         client.Reader
	cloud        Cloud
	nodes        *nodes
	reservations *reservationEnd
	sightings    *sightings
	evictions    *evictions
	brake        *brake.Brake
	queue        *queue
	clock        clock.PassiveClock
	runs, listed int // how often it was collected, and instances then
}

// collect terminates instances that no claim owns, deletes Nodes without claim and instance, and enqueues claims whose instance isn't
// listed any more or has left its capacity reservation. It returns when to collect next; an error doesn't change that.
func (g *garbage) collect(ctx context.Context) (time.Duration, error) {
	g.runs++
	if err := g.collectOnce(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Garbage collection failed, will retry")
	}
	if g.runs > garbageRuns {
		return garbageEvery, nil
	}
	return min(max(garbageFirst, time.Duration(g.listed)*garbageRest), garbageEvery), nil
}

func (g *garbage) collectOnce(ctx context.Context) error {
	instances, err := g.cloud.List(ctx)
	if err != nil {
		return err
	}
	g.listed = len(instances)
	var cached karpv1.NodeClaimList
	if err := g.claims.List(ctx, &cached); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	claims := newClaimSet(cached.Items)
	listed := map[string]bool{}
	for i := range instances {
		listed[instances[i].ProviderID] = true
	}
	for id, claim := range claims.byProvider {
		if !listed[id] {
			g.queue.add(key{claim: claim.Name}) // liveness checks it, if its node isn't Ready
		}
	}
	if err := g.reservations.find(ctx, instances, claims); err != nil {
		klog.FromContext(ctx).Error(err, "Could not relabel nodes whose capacity reservation has ended as on-demand, will retry")
	}
	now := g.clock.Now()
	g.tidyMemory(claims, now)
	nodes, err := g.nodes.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	if len(orphans(instances, claims, now)) == 0 && len(g.shells(nodes, listed, claims)) == 0 {
		return nil
	}
	// The cache may be behind; terminations are decided on what the API says now.
	if claims, err = liveClaims(ctx, g.live); err != nil {
		return err
	}
	var errs []error
	for _, inst := range orphans(instances, claims, now) {
		if !g.brake.Take(now) {
			// So many at once look like a mistake rather than like accidents.
			klog.FromContext(ctx).Info("No more instances without NodeClaim are terminated within this minute", "perMinute", g.brake.PerMinute())
			break
		}
		errs = append(errs, g.collectInstance(ctx, inst))
	}
	for _, n := range g.shells(nodes, listed, claims) {
		klog.FromContext(ctx).Info("Deleting a Node without NodeClaim and instance", "node", klog.KObj(n), "providerID", n.Spec.ProviderID)
		errs = append(errs, g.nodes.remove(ctx, n))
	}
	return utilerrors.NewAggregate(errs)
}

// shells returns managed Nodes with our finalizer that have no claim, no instance and no Ready kubelet. The deletion of such a Node
// starts its termination, which looks for the instance once more.
func (g *garbage) shells(nodes []*corev1.Node, listed map[string]bool, claims claimSet) []*corev1.Node {
	var out []*corev1.Node
	for _, n := range nodes {
		if g.nodes.finalized(n) && n.DeletionTimestamp == nil && !objects.Ready(n) && !listed[n.Spec.ProviderID] && claims.byProvider[n.Spec.ProviderID] == nil {
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
func (g *garbage) collectInstance(ctx context.Context, inst capacity.Instance) error {
	nodes := g.nodes.byProviderID(inst.ProviderID)
	for _, n := range nodes {
		switch {
		case g.nodes.nodeClass.OfAnotherProvider(n):
			return nil // another provider manages the Node, and so the instance, whatever its tags say
		case g.nodes.finalized(n) && n.DeletionTimestamp != nil:
			g.queue.add(key{node: n.Name})
			return nil
		case g.nodes.finalized(n) || g.nodes.nodeClass.Managed(n) && objects.Posted(n) && n.DeletionTimestamp == nil:
			klog.FromContext(ctx).Info("Deleting a Node whose NodeClaim is gone", "node", klog.KObj(n), "instance", inst.ID)
			if _, err := g.nodes.patch(ctx, n.Name, n.UID, func(n *corev1.Node) { addFinalizer(n) }); err != nil {
				return err
			}
			return g.nodes.remove(ctx, n)
		}
	}
	// It was listed: "not found" is lag (capacity.LaunchGrace), and the next run tries again.
	if err := g.cloud.Terminate(ctx, inst.ID); err != nil {
		return fmt.Errorf("an instance that no NodeClaim owns: %w", err)
	}
	collections.Inc()
	klog.FromContext(ctx).Info("Terminated an instance that no NodeClaim owns", "instance", inst.ID, "launchBatch", inst.LaunchBatch, "claim", inst.Claim)
	for _, n := range nodes {
		if g.nodes.nodeClass.Managed(n) {
			if err := g.nodes.remove(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// sightingMemory is how long an instance that no claim owns is remembered after it was last looked up: longer than any decision about it
// takes.
const sightingMemory = 15 * time.Minute

// tidyMemory forgets what was remembered about pods and instances that no decision needs any more.
func (g *garbage) tidyMemory(claims claimSet, now time.Time) {
	owned := map[string]bool{}
	for id := range claims.byProvider {
		owned[capacity.InstanceID(id)] = true
	}
	g.sightings.seen.prune(func(id string, x sighting) bool {
		return !owned[id] && x.at.Before(now.Add(-sightingMemory)) // a known end of an owned instance must stay known
	})
	g.evictions.prune(func(_ types.UID, a attempt) bool { return now.Sub(a.at) > evictionMemory })
}
