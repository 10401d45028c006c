package capacity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Pool describes where nodes may be bought: a NodePool, a legacy Provisioner or an inline pool, in one form.
type Pool struct {
	Name   string
	Weight int32
	// NodeClass is the name under which the cloud provider knows the node class.
	NodeClass string
	// Replicas is how many nodes a static pool keeps, whatever the demand; nil: nodes are launched for pods. Pods may run on a static
	// pool's nodes, but none is launched for them.
	Replicas *int64
	// Schedulers are the names of the schedulers for whose pods nodes may be launched here; empty: all.
	Schedulers []string
	// Labels are those of every node of the pool, including karpenter.sh/nodepool.
	Labels map[string]string
	// Requirements restrict the offerings; they include Labels as single values.
	Requirements Requirements
	Taints       []corev1.Taint
	// StartupTaints will be removed by an agent on the node, so pods need not tolerate them to be planned here.
	StartupTaints []corev1.Taint
	// Unread: a part of the node class's user data can't be read, so until its kubelet has registered it isn't known how much a node leaves for pods.
	Unread bool
	// Limits is the most that Used and what is planned may add up to. A resource not listed is not limited. ResourceNodes counts nodes.
	Limits Resources
	// Total is the limit of all pools together, which holds besides the pool's own; nil: there is none. The pools of a View share it.
	Total *Total
	// MaxDollars is how many dollars per hour the pool's nodes may cost; 0: any amount.
	MaxDollars float64
	// ZoneBalance is how much dearer than its cheapest offering a new node may be for the sake of even zones, as a fraction: 0.1 is 10 %. With 0 a
	// node is put only in zones where it costs no more than in the cheapest. nil: zones aren't balanced.
	ZoneBalance *float64
	// Used is how much of its limits the pool's nodes use. A node in flight counts as the largest instance type that may be launched for
	// it.
	Used Resources
	// Types are the types that the node class can run, not yet narrowed by Requirements.
	Types []*InstanceType
	// Paused says why some of the pool's offerings count as unavailable although the cloud has them: breakers of the spending guard are
	// open. Empty: none.
	Paused string
	// Unready says why the pool can't be used now (its own condition or its node class's); empty if it can.
	Unready string
}

// Total is what the nodes of all pools together may use, and what they use. It must not be changed.
type Total struct {
	// Limits is the most that Used and what is planned may add up to, in the units of Pool.Limits. A resource not listed is not limited.
	Limits Resources
	// Used is how much of the limits all nodes use, also those of pools that are gone. Nodes in flight count as in Pool.Used.
	Used Resources
}

// TotalOf returns the limit that the pools share; nil: there is none.
func TotalOf(pools []*Pool) *Total {
	for _, p := range pools {
		if p.Total != nil {
			return p.Total
		}
	}
	return nil
}

// Left returns how much of a limited resource is left; 0 also if nodes use more than the limit, because it was lowered: nodes that have nothing of
// the resource can still be launched.
func (t *Total) Left(name corev1.ResourceName) int64 {
	return max(0, SatAdd(t.Limits[name], SatMul(t.Used[name], -1)))
}

// Serves reports whether nodes of the pool may be launched for pods of the scheduler; "" stands for pods without a scheduler, such as
// daemons.
func (p *Pool) Serves(scheduler string) bool {
	return len(p.Schedulers) == 0 || scheduler == "" || slices.Contains(p.Schedulers, scheduler)
}

// DaemonSet is a daemon that runs a pod on every node it fits. Capacity for that pod is planned on new nodes and reserved on initializing
// ones.
type DaemonSet struct {
	Namespace, Name string
	// Class is the class of its pods: requests, node requirements and tolerations (including those that the DaemonSet controller adds).
	// The spread and affinity of other pods count its pods, and its anti-affinity keeps other pods off. The planner doesn't decide
	// where daemons themselves run.
	Class *Class
}

// RunsOn reports whether the daemon will run a pod on a node with these labels and taints.
func (d *DaemonSet) RunsOn(labels map[string]string, taints []corev1.Taint) bool {
	return Untolerated(d.Class.Tolerations, taints) == nil &&
		(len(d.Class.Terms) == 0 || slices.ContainsFunc(d.Class.Terms, func(term Requirements) bool { return term.Match(labels) }))
}
