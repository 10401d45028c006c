package chaos

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// disagreement describes what is not consistent yet, some time after the faults have stopped; empty: everything is.
//
//   - Every pod runs on an existing Node, or is refused with a reason if nothing can host it, or waits because no capacity is made
//     for it (a profile without the plugins); there are as many as wanted.
//   - Instances, NodeClaims and Nodes correspond to each other; all are initialized, none is being terminated or marked for it.
//   - There is no instance without need.
func (c *checker) disagreement(apps []*app) string {
	v := c.last
	want := map[string]int{}
	for _, a := range apps {
		want[a.name] = a.replicas
	}
	busy := map[string]bool{}
	for _, p := range v.pods {
		name := p.Labels[appLabel]
		if name == daemon {
			continue
		}
		want[name]--
		switch {
		case p.DeletionTimestamp != nil:
			return fmt.Sprintf("pod %s is ending", p.Name)
		case len(name) > len(impossible) && name[:len(impossible)] == impossible:
			if !refused(p) {
				return fmt.Sprintf("pod %s, which nothing can host, doesn't say so: %+v", p.Name, p.Status.Conditions)
			}
		case p.Spec.SchedulerName == PlainScheduler && p.Spec.NodeName == "":
			if !refused(p) {
				return fmt.Sprintf("pod %s, for which no room is made, doesn't say why it waits: %+v", p.Name, p.Status.Conditions)
			}
		case p.Status.Phase != corev1.PodRunning:
			return fmt.Sprintf("pod %s is %s on node %q: %s", p.Name, p.Status.Phase, p.Spec.NodeName, words(p))
		case v.nodes[p.Spec.NodeName] == nil:
			return fmt.Sprintf("pod %s runs on node %s, which isn't there", p.Name, p.Spec.NodeName)
		default:
			busy[p.Spec.NodeName] = true
		}
	}
	for name, n := range want {
		if n != 0 {
			return fmt.Sprintf("%d pods of %s are missing", n, name)
		}
	}
	byID := map[string]*corev1.Node{}
	for name, n := range v.nodes {
		if byID[n.Spec.ProviderID] != nil {
			return fmt.Sprintf("Nodes %s and %s are the same instance", name, byID[n.Spec.ProviderID].Name)
		}
		byID[n.Spec.ProviderID] = n
		for _, t := range n.Spec.Taints {
			return fmt.Sprintf("Node %s still has the taint %s", name, t.ToString())
		}
	}
	live := 0
	for _, alive := range v.live {
		if alive {
			live++
		}
	}
	if len(v.claims) != live || len(v.nodes) != live {
		return fmt.Sprintf("%d instances, %d claims and %d Nodes", live, len(v.claims), len(v.nodes))
	}
	for name, claim := range v.claims {
		node := byID[claim.Status.ProviderID]
		switch {
		case claim.DeletionTimestamp != nil:
			return fmt.Sprintf("claim %s is ending", name)
		case !condition(claim, karpv1.ConditionTypeInitialized):
			return fmt.Sprintf("claim %s isn't initialized", name)
		case !v.live[claim.Status.ProviderID]:
			return fmt.Sprintf("claim %s has no living instance", name)
		case node == nil || node.Name != claim.Status.NodeName:
			return fmt.Sprintf("claim %s has no Node", name)
		case !busy[node.Name] && !c.buffered:
			return fmt.Sprintf("nobody needs node %s", node.Name)
		}
	}
	return c.extras.unrepaired(v)
}

func refused(p *corev1.Pod) bool { return words(p) != "" }

// words returns why a pod isn't scheduled.
func words(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
