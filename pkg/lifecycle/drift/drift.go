package drift

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

const (
	// every is how often a claim is compared with its pool and class although nothing seems to have changed: the instance may have changed.
	every = 5 * time.Minute
	// retry is when a claim is compared again if something wasn't known.
	retry = 30 * time.Second
	// pace is the least time between two changes of the condition, of all claims together: a class that changes makes thousands of claims drift
	// at once, and writing their conditions must not delay the writes for nodes that are starting.
	pace = time.Second / 20
)

// Conditions sets the condition of claims, each of which is handled by one goroutine at a time.
type Conditions struct {
	objects   client.Reader // from a cache
	nodeClass *cloudprovider.NodeClassKind
	cloud     cloudprovider.Drift
	clock     clock.PassiveClock
	memory    *memory
}

// New returns Conditions that reads pools and node classes of a kind, and the claims, from objects.
func New(objects client.Reader, nodeClass *cloudprovider.NodeClassKind, cloud cloudprovider.Drift, c clock.PassiveClock) *Conditions {
	return &Conditions{objects: objects, nodeClass: nodeClass, cloud: cloud, clock: c, memory: newMemory()}
}

// Reconcile sets or clears the claim's condition in set, and returns when to call it again; 0: when something changes. A standalone claim
// has nothing to drift from.
func (d *Conditions) Reconcile(ctx context.Context, claim *karpv1.NodeClaim, set status.ConditionSet) (time.Duration, error) {
	if !karpenter.ConditionTrue(claim, karpv1.ConditionTypeLaunched) {
		d.memory.forget(claim.Name)
		return 0, apply(ctx, claim, set, "")
	}
	pool := claim.Labels[karpv1.NodePoolLabelKey]
	if pool == "" || len(claim.Status.Allocatable) == 0 {
		return 0, nil // standalone, or the labels of its instance type haven't been recorded yet
	}
	key := d.memory.keyOf(claim, pool, d.nodeClass)
	now := d.clock.Now()
	last, known := d.memory.get(claim.Name)
	if known && last.key == key && now.Before(last.at.Add(every)) {
		return last.carryOut(ctx, claim, set, now)
	}
	reason, err := d.reasonOf(ctx, claim, pool)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not tell whether the node has drifted, will retry", "err", err)
		return retry, nil
	}
	c := compared{key: key, at: now, reason: reason}
	switch {
	case reason == reasonOn(claim):
	case known && reason == last.reason && !last.turn.IsZero():
		c.turn = last.turn // the comparison was repeated while the change waited for its turn (pace), which it keeps
	default:
		c.turn = d.memory.turn(now)
	}
	d.memory.put(claim.Name, c)
	return c.carryOut(ctx, claim, set, now)
}

// Forget drops what is remembered about a claim.
func (d *Conditions) Forget(claim string) { d.memory.forget(claim) }

// carryOut gives the claim the condition when it is its turn, and returns when there is something to do again.
func (c *compared) carryOut(ctx context.Context, claim *karpv1.NodeClaim, set status.ConditionSet, now time.Time) (time.Duration, error) {
	if wait := c.turn.Sub(now); wait > 0 {
		return wait, nil
	}
	return c.at.Add(every).Sub(now), apply(ctx, claim, set, c.reason)
}

// reasonOn returns the reason of the claim's condition; "": it has none.
func reasonOn(claim *karpv1.NodeClaim) cloudprovider.DriftReason {
	if had := claim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeDrifted); had != nil {
		return cloudprovider.DriftReason(had.Reason)
	}
	return ""
}

// apply gives the claim the condition for a reason.
func apply(ctx context.Context, claim *karpv1.NodeClaim, set status.ConditionSet, reason cloudprovider.DriftReason) error {
	switch had := reasonOn(claim); {
	case reason != "":
		if had != reason {
			klog.FromContext(ctx).V(2).Info("The node has drifted", "reason", reason)
		}
		set.SetTrueWithReason(karpv1.ConditionTypeDrifted, string(reason), string(reason))
	case had != "":
		klog.FromContext(ctx).V(2).Info("The node is no longer drifted", "was", had)
		if err := set.Clear(karpv1.ConditionTypeDrifted); err != nil {
			return fmt.Errorf("clearing a condition: %w", err)
		}
	}
	return nil
}

// errUnknown is why a claim can't be compared, for want of something to compare it with.
var errUnknown = errors.New("can't be read")

// reasonOf returns why a launched claim isn't what its pool would launch now. The pool counts before the class and the cloud; of these, only
// an instance type that is gone counts before the class's hash.
func (d *Conditions) reasonOf(ctx context.Context, claim *karpv1.NodeClaim, pool string) (cloudprovider.DriftReason, error) {
	np := &karpv1.NodePool{}
	if err := d.objects.Get(ctx, client.ObjectKey{Name: pool}, np); err != nil {
		return "", fmt.Errorf("reading NodePool %s: %w", pool, err)
	}
	if karpenter.Malformed(np) != "" {
		return "", fmt.Errorf("NodePool %s %w: %s", pool, errUnknown, karpenter.Malformed(np))
	}
	reason := karpenter.PoolDrift(np, claim)
	if reason == cloudprovider.NodePoolDrifted && outdated(np.Annotations, karpenter.PoolStamp(np)) {
		return "", fmt.Errorf("NodePool %s: its hash annotation is not that of its template yet", pool)
	}
	if reason != "" {
		return reason, nil
	}
	ref := np.Spec.Template.Spec.NodeClassRef
	if ref == nil || ref.GroupKind() != d.nodeClass.GroupKind() {
		return "", nil
	}
	class := d.nodeClass.New()
	if err := d.objects.Get(ctx, client.ObjectKey{Name: ref.Name}, class); apierrors.IsNotFound(err) {
		return "", nil // without its class it isn't known what nodes should be like
	} else if err != nil {
		return "", fmt.Errorf("reading %s %s: %w", d.nodeClass.Kind, ref.Name, err)
	}
	if karpenter.Malformed(class) != "" {
		return "", fmt.Errorf("%s %s %w: %s", d.nodeClass.Kind, ref.Name, errUnknown, karpenter.Malformed(class))
	}
	reason, unknown := d.cloud.Drifted(ctx, cloudprovider.LaunchedNode{
		NodeClass: ref.Name, InstanceID: capacity.InstanceID(claim.Status.ProviderID), ImageID: claim.Status.ImageID, Labels: claim.Labels,
		TypeCounts: d.clock.Since(claim.CreationTimestamp.Time) > cloudprovider.TypeDriftAge,
	})
	if reason != cloudprovider.InstanceTypeNotFound && karpenter.ClassDrift(d.nodeClass, class.GetAnnotations(), claim) {
		if ca, known := d.cloud.ClusterCA(); !known || outdated(class.GetAnnotations(), karpenter.ClassStamp(d.nodeClass, class, ca)) {
			return "", fmt.Errorf("%s %s: its hash annotation is not that of its spec yet", d.nodeClass.Kind, ref.Name)
		}
		return cloudprovider.NodeClassDrift, nil
	}
	return reason, unknown
}

// outdated reports whether the hash in an object's annotations is no longer that of its spec, as after an edit while there was no leader. The next
// leader writes the new hash. Claims that it creates before that have the new hash already: they have not drifted.
func outdated(annotations map[string]string, now karpenter.Stamp) bool {
	return now.Current(annotations) && !now.On(annotations)
}

// Round returns the names of the claims to reconcile: those of each pool that has changed since the last Round in something that may make nodes
// drift, which is the pool's spec or hash, its node class, or what that class is resolved to.
func (d *Conditions) Round(ctx context.Context) ([]string, error) {
	var pools karpv1.NodePoolList
	if err := d.objects.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("listing NodePools: %w", err)
	}
	now := map[string]source{}
	for i := range pools.Items {
		np := &pools.Items[i]
		s := source{pool: np.UID, generation: np.Generation,
			hash: np.Annotations[karpv1.NodePoolHashVersionAnnotationKey] + "/" + np.Annotations[karpv1.NodePoolHashAnnotationKey]}
		if ref := np.Spec.Template.Spec.NodeClassRef; ref != nil && ref.GroupKind() == d.nodeClass.GroupKind() {
			class := d.nodeClass.New()
			if err := d.objects.Get(ctx, client.ObjectKey{Name: ref.Name}, class); err == nil {
				s.class, s.classVersion, s.classGeneration = class.GetUID(), class.GetResourceVersion(), class.GetGeneration()
			} else if !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("reading %s %s: %w", d.nodeClass.Kind, ref.Name, err)
			}
		}
		now[np.Name] = s
	}
	changed := d.memory.observe(now)
	if len(changed) == 0 {
		return nil, nil
	}
	var claims karpv1.NodeClaimList
	if err := d.objects.List(ctx, &claims, client.HasLabels{karpv1.NodePoolLabelKey}); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	var out []string
	for i := range claims.Items {
		if changed[claims.Items[i].Labels[karpv1.NodePoolLabelKey]] {
			out = append(out, claims.Items[i].Name)
		}
	}
	return out, nil
}

// source is what the nodes of a pool come from, in the version that was seen.
type source struct {
	pool            types.UID
	generation      int64
	hash            string
	class           types.UID
	classVersion    string
	classGeneration int64
}
