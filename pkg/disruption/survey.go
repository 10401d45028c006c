package disruption

import (
	"context"
	"fmt"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// machine is a claim with its Node and its pool. All are shared and must not be changed.
type machine struct {
	claim *karpv1.NodeClaim
	node  *corev1.Node     // nil: it doesn't exist
	pool  *karpv1.NodePool // nil: none
}

// survey holds the claims, nodes and pools at the beginning of a pass.
type survey struct {
	machines []*machine
	pools    []*karpv1.NodePool
}

// survey reads pools and claims and finds each claim's Node.
func (c *Controller) survey(ctx context.Context) (*survey, error) {
	var claims karpv1.NodeClaimList
	if err := c.claims.List(ctx, &claims); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	var pools karpv1.NodePoolList
	if err := c.claims.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("listing NodePools: %w", err)
	}
	s := &survey{}
	byName := map[string]*karpv1.NodePool{}
	for i := range pools.Items {
		p := &pools.Items[i]
		s.pools, byName[p.Name] = append(s.pools, p), p
	}
	seen := map[string]bool{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		m := &machine{claim: claim, pool: byName[claim.Labels[karpv1.NodePoolLabelKey]]}
		if n, err := c.nodeList.Get(claim.Status.NodeName); err == nil && n.Spec.ProviderID == claim.Status.ProviderID {
			m.node = n
		}
		s.machines = append(s.machines, m)
		if claim.DeletionTimestamp == nil {
			seen[string(claim.UID)] = true
		}
	}
	for uid := range c.going {
		if !seen[uid] {
			delete(c.going, uid)
		}
	}
	for key, at := range c.said {
		if c.clock.Since(at) > 2*sayEvery {
			delete(c.said, key)
		}
	}
	return s, nil
}

// clearStrays removes the disrupted taint from Nodes whose claim was not deleted: the pass that set it was interrupted.
func (c *Controller) clearStrays(ctx context.Context, s *survey) (errs []error) {
	for _, m := range s.machines {
		uid := string(m.claim.UID)
		if m.node == nil || m.claim.DeletionTimestamp != nil || m.node.DeletionTimestamp != nil || c.going[uid] || c.leaving[uid] != nil || !disrupted(m.node) {
			continue
		}
		now := &karpv1.NodeClaim{}
		err := c.live.Get(ctx, client.ObjectKeyFromObject(m.claim), now)
		if apierrors.IsNotFound(err) || err == nil && now.DeletionTimestamp != nil {
			continue
		} else if err != nil {
			errs = append(errs, fmt.Errorf("reading NodeClaim %s: %w", m.claim.Name, err))
			continue
		}
		if err := c.nodes.Undisrupt(ctx, m.node); err != nil {
			errs = append(errs, fmt.Errorf("uncordoning Node %s: %w", m.node.Name, err))
			continue
		}
		c.fence.Unfence(m.node.Name)
		klog.FromContext(ctx).V(2).Info("Removed a left-over taint", "node", klog.KObj(m.node), "nodeClaim", m.claim.Name)
	}
	return errs
}

func disrupted(n *corev1.Node) bool {
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].Key == karpv1.DisruptedTaintKey {
			return true
		}
	}
	return false
}

// condition returns a claim's condition if it is True, else nil.
func condition(claim *karpv1.NodeClaim, kind string) *status.Condition {
	cond := claim.StatusConditions(status.WithObservedOnly()).Get(kind)
	if cond == nil || cond.Status != metav1.ConditionTrue {
		return nil
	}
	return cond
}
