package explain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Evictions returns the PodDisruptionBudget that allows no eviction of a pod now; nil: none does.
type Evictions interface {
	Blocked(pod *corev1.Pod, now time.Time) *consolidation.Kept
}

// Against returns what keeps a node from being taken away, or brings it back, as the cluster's objects say it: a sentence each. Empty: nothing does. It
// says nothing about disruption budgets of NodePools, which bind controllers and not the people who ask.
func (c *Cluster) Against(n *corev1.Node) []string {
	return (&objections{c, n, c.claimOf(n.Name)}).against()
}

// objections finds what on a cluster's objects keeps a node.
type objections struct {
	cluster *Cluster
	node    *corev1.Node
	claim   *karpv1.NodeClaim // nil: it has none
}

func (o *objections) pool() (*karpv1.NodePool, bool) {
	return find[*karpv1.NodePool](o.cluster.Set, "", o.node.Labels[karpv1.NodePoolLabelKey])
}

func (o *objections) against() (out []string) {
	name := o.node.Name
	np, known := o.pool()
	switch {
	case o.node.Labels[karpv1.NodePoolLabelKey] == "":
		out = append(out, name+": it is no node of a NodePool: what made it, such as an Auto Scaling group, may replace it")
	case known && np.Spec.Replicas != nil:
		out = append(out, fmt.Sprintf("%s: NodePool %s is static and keeps %s (spec.replicas): another one would be launched", name, np.Name, plural(int(*np.Spec.Replicas), "node")))
	}
	for _, k := range slices.Concat(o.protected(), o.budgeted()) {
		out = append(out, name+": "+k.Text())
	}
	return out
}

// protected returns a reason for the node, or else for each pod, that asks not to be disrupted.
func (o *objections) protected() (out []consolidation.Kept) {
	if o.node.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" || o.claim != nil && o.claim.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		return []consolidation.Kept{{Kind: consolidation.Protected}}
	}
	for _, pod := range o.cluster.podsOn(o.node.Name) {
		if yes, until := pods.DoNotDisrupt(pod, o.cluster.Now); yes && !pods.Terminating(pod) {
			out = append(out, consolidation.Kept{Kind: consolidation.Protected, Pod: capacity.RefOf(pod), Until: until})
		}
	}
	return out
}

// budgeted returns a reason for the first pod of the node whose eviction each PodDisruptionBudget forbids.
func (o *objections) budgeted() (out []consolidation.Kept) {
	if o.cluster.Evictions == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, pod := range o.cluster.podsOn(o.node.Name) {
		k := o.cluster.Evictions.Blocked(pod, o.cluster.Now)
		if k == nil || seen[pod.Namespace+"/"+k.Name] {
			continue
		}
		seen[pod.Namespace+"/"+k.Name] = true
		out = append(out, *k)
	}
	return out
}

// kept returns what keeps the node from consolidation, where no controller has said it; nil: nothing does.
func (o *objections) kept() *consolidation.Kept {
	if ready := objects.ReadyCondition(o.node); !objects.Ready(o.node) {
		message := "its condition Ready isn't True"
		if ready != nil && ready.Status == corev1.ConditionUnknown {
			message = "it is unreachable (Ready is Unknown)"
		}
		return &consolidation.Kept{Kind: consolidation.NotReady, Message: message}
	}
	np, known := o.pool()
	switch pool := o.node.Labels[karpv1.NodePoolLabelKey]; {
	case !known && pool != "" && !karpenter.Derived(pool): // pools of Provisioners and of ProvisionArgs are no NodePools
		return &consolidation.Kept{Kind: consolidation.OtherReason, Message: "its NodePool " + pool + " is gone, so that no policy of a pool empties or replaces it; delete its NodeClaim if it isn't needed"}
	case known && np.Spec.Replicas != nil:
		return &consolidation.Kept{Kind: consolidation.Static}
	}
	if all := slices.Concat(o.protected(), o.budgeted()); len(all) > 0 {
		return &all[0]
	}
	used := slices.ContainsFunc(o.cluster.podsOn(o.node.Name), func(pod *corev1.Pod) bool { return pods.Occupies(pod, o.cluster.Now) })
	switch {
	case !known:
		return nil
	case np.Spec.Disruption.ConsolidateAfter.Duration == nil && np.Spec.Disruption.ConsolidateAfter.Raw != nil:
		return &consolidation.Kept{Kind: consolidation.Disabled}
	case used && np.Spec.Disruption.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty:
		return &consolidation.Kept{Kind: consolidation.PolicyWhenEmpty}
	}
	return nil
}
