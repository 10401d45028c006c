package chaos

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/outside"
)

// underutilized is the reason of deletions that save money: the node had pods, and emptyings have found nothing wrong with it.
const underutilized = "underutilized"

// drifted is the reason of deletions of nodes that have drifted, with pods or without.
const drifted = "drifted"

// leftSpot is the reason of deletions of nodes whose spot capacity EC2 recommends to leave, with pods.
const leftSpot = "EC2 recommended to leave its spot capacity"

// finalizers: a claim that has an instance, and a Node that has registered, exist until the instance is terminated.
func (c *checker) finalizers(v *view) error {
	for name, was := range c.last.claims {
		c.made["finalizers: claims and registered Nodes stay until their instance has ended"]++
		if is := v.claims[name]; (is == nil || is.UID != was.UID) && was.Status.ProviderID != "" && v.there[was.Status.ProviderID] {
			return fmt.Errorf("claim %s is gone, its instance %s is not", name, was.Status.ProviderID)
		}
	}
	for name, was := range c.last.nodes {
		if is := v.nodes[name]; (is == nil || is.UID != was.UID) && was.Labels[karpv1.NodeRegisteredLabelKey] == "true" && v.there[was.Spec.ProviderID] {
			return fmt.Errorf("Node %s was registered and is gone, its instance %s is not", name, was.Spec.ProviderID)
		}
	}
	return nil
}

// endings: a claim is only deleted for a reason that can be seen from outside.
func (c *checker) endings(v *view, now time.Time) error {
	for name, claim := range v.claims {
		if claim.DeletionTimestamp == nil || c.ended[name] != "" {
			continue
		}
		c.ended[name] = c.reason(v, claim, now)
		has := condition(claim, karpv1.ConditionTypeDrifted) || c.last.claims[name] != nil && condition(c.last.claims[name], karpv1.ConditionTypeDrifted)
		leaves := leavesSpot(claim, c.pool)
		if c.ended[name] == "" && (has || leaves || c.pool.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationPolicyWhenEmpty) {
			found, err := c.emptied.outcome(name, func(other string) bool {
				return c.ended[other] == underutilized || c.ended[other] == "empty" || c.ended[other] == drifted || c.ended[other] == leftSpot
			})
			switch {
			case err != nil:
				return fmt.Errorf("claim %s: %w", name, err)
			case found && has:
				c.ended[name] = drifted
			case found && leaves:
				c.ended[name] = leftSpot
			case found:
				c.ended[name] = underutilized
			}
		}
		if c.ended[name] != underutilized && c.ended[name] != drifted && c.ended[name] != leftSpot {
			c.emptied.forces(name)
		}
		if reason := c.ended[name]; reason != underutilized && reason != drifted && reason != "empty" {
			c.emptied.others(name)
		}
		if c.ended[name] == "" {
			return fmt.Errorf("claim %s (node %s) was ended, and there is no reason for it: pods there now: %s", name, claim.Status.NodeName, c.podsOn(v, claim.Status.NodeName))
		}
		c.made["endings: "+c.ended[name]]++
	}
	return nil
}

// reason returns why a claim that has just been deleted may have been deleted; empty: for no permitted reason.
func (c *checker) reason(v *view, claim *karpv1.NodeClaim, now time.Time) string {
	age := now.Sub(claim.CreationTimestamp.Time) + c.jumped + step
	was := c.last.claims[claim.Name]
	if was == nil {
		was = claim
	}
	node := c.last.nodes[was.Status.NodeName]
	switch {
	case c.userClaims.Has(claim.Name):
		return "a user deleted it"
	case claim.Status.ProviderID == "":
		return "nothing was launched for it"
	case c.userEnded.Has(claim.Status.ProviderID):
		return "a user deleted its Node"
	case !v.live[claim.Status.ProviderID] || !c.last.live[claim.Status.ProviderID]:
		return "its instance has ended"
	case c.byCloud(claim.Status.ProviderID):
		return "the cloud controller manager deleted its Node"
	case !condition(was, karpv1.ConditionTypeRegistered) && age > 15*time.Minute, !condition(was, karpv1.ConditionTypeInitialized) && age > 30*time.Minute:
		return "it did not come up"
	case !condition(was, karpv1.ConditionTypeInitialized) && age > 15*time.Minute && c.empty(v, was.Status.NodeName):
		return "it did not come up, and no pod waits there"
	}
	if !condition(was, karpv1.ConditionTypeInitialized) && c.lasting.faults[noDevices] != nil && (was.Status.NodeName == "" || c.empty(v, was.Status.NodeName)) {
		return "its pods got other room before its device came"
	}
	if !condition(was, karpv1.ConditionTypeRegistered) && (was.Status.NodeName == "" || c.empty(v, was.Status.NodeName)) {
		return "its pods got other room before it came up"
	}
	if d := claim.Spec.ExpireAfter.Duration; d != nil && age >= *d-min(10*time.Minute, *d/4) {
		return "expired"
	}
	if node != nil && notReadyFor(node, now.Add(c.jumped+step)) >= 30*time.Minute {
		return "it was unhealthy for longer than is tolerated"
	}
	if c.extras.repaired(claim.Status.ProviderID, now, c.jumped) {
		return "it was unhealthy, and is repaired"
	}
	if c.extras.reclaimed[claim.Status.ProviderID] {
		return "EC2 interrupts its instance"
	}
	if leavesSpot(claim, c.pool) && node != nil && c.empty(v, node.Name) && c.empty(c.last, node.Name) {
		return leftSpot
	}
	quiet := c.pool.Spec.Disruption.ConsolidateAfter.Duration
	if (condition(was, karpv1.ConditionTypeDrifted) || condition(claim, karpv1.ConditionTypeDrifted)) && node != nil && c.empty(v, node.Name) && c.empty(c.last, node.Name) {
		return drifted
	}
	if condition(was, karpv1.ConditionTypeInitialized) && node != nil && c.empty(v, node.Name) && c.empty(c.last, node.Name) &&
		!now.Add(c.jumped+2*step).Before(c.occupied[node.Name].Add(*quiet)) {
		return "empty"
	}
	return ""
}

// leavesSpot reports whether a claim's node is to be replaced because EC2 recommends to leave its spot capacity.
func leavesSpot(claim *karpv1.NodeClaim, pool *karpv1.NodePool) bool {
	return claim.Annotations["dovetail.sh/rebalance-recommended"] != "" && pool.Annotations["dovetail.sh/rebalance"] == "replace" &&
		claim.Labels[karpv1.CapacityTypeLabelKey] == karpv1.CapacityTypeSpot
}

// returnsToSpot reports whether a claim's node was bought on demand for want of spot capacity, so long ago that it may return to it.
func returnsToSpot(claim *karpv1.NodeClaim, age time.Duration) bool {
	return claim.Annotations["dovetail.sh/for-want-of-spot"] == "true" && age >= 30*time.Minute
}

// notReadyFor returns for how long a Node hasn't been Ready.
func notReadyFor(n *corev1.Node, now time.Time) time.Duration {
	for i := range n.Status.Conditions {
		if x := &n.Status.Conditions[i]; x.Type == corev1.NodeReady && x.Status != corev1.ConditionTrue {
			return now.Sub(x.LastTransitionTime.Time)
		}
	}
	return 0
}

func (c *checker) byCloud(providerID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cloudEnded.Has(providerID)
}

// nodeEndings: a Node whose kubelet has registered is only deleted with its claim, by another controller or a user, or after its
// instance.
func (c *checker) nodeEndings(v *view) error {
	for name, was := range c.last.nodes {
		is := v.nodes[name]
		id := was.Spec.ProviderID
		if was.Labels[karpv1.NodeRegisteredLabelKey] != "true" || was.DeletionTimestamp != nil || is != nil && is.UID == was.UID && is.DeletionTimestamp == nil {
			continue
		}
		c.made["Nodes: deleted with their claim, by a user, or after their instance"]++
		if c.userEnded.Has(id) || c.byCloud(id) || !v.live[id] || !c.last.live[id] {
			continue
		}
		if claim := claimOf(v, id); claim != nil && claim.DeletionTimestamp == nil {
			return fmt.Errorf("Node %s was deleted, its claim %s was not", name, claim.Name)
		}
	}
	return nil
}

// terminations: an instance is only terminated when its claim is being deleted or gone, and the pods of a Ready node were evicted
// before. The changes are those of the EC2 journal.
func (c *checker) terminations(v *view, changes []ec2.Change) error {
	for ; c.changes < len(changes); c.changes++ {
		ch := changes[c.changes]
		if ch.To != "shutting-down" || !strings.HasPrefix(ch.Reason, "Client.UserInitiatedShutdown") {
			continue
		}
		c.made["terminations: only of a claim that is ending, or of no claim, and drained"]++
		id := "aws:///" + ch.Zone + "/" + ch.Instance
		if claim := claimOf(v, id); claim != nil && claim.DeletionTimestamp == nil {
			return fmt.Errorf("instance %s was terminated, its claim %s was not ended", ch.Instance, claim.Name)
		}
		if c.pool.Spec.Template.Spec.TerminationGracePeriod != nil || c.extras.repaired(id, c.at.Add(step), c.jumped) {
			continue // there is a deadline, which may have passed while nothing ran
		}
		for _, n := range c.last.nodes {
			if n.Spec.ProviderID != id || !outside.Ready(n) {
				continue
			}
			if left := c.undrained(v, n.Name); left != "" {
				return fmt.Errorf("instance %s was terminated, and nobody had asked the pods of its node %s to go: %s", ch.Instance, n.Name, left)
			}
		}
	}
	return nil
}

// undrained returns the running pods of a node, other than daemons, that were not asked to terminate.
func (c *checker) undrained(v *view, node string) string {
	var out []string
	for _, p := range v.podsInOrder() {
		if p.Spec.NodeName == node && p.Labels[appLabel] != daemon && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			out = append(out, p.Name)
		}
	}
	return strings.Join(out, " ")
}

// claimOf returns the claim of an instance, or nil.
func claimOf(v *view, providerID string) *karpv1.NodeClaim {
	for _, claim := range v.claims {
		if claim.Status.ProviderID == providerID {
			return claim
		}
	}
	return nil
}
