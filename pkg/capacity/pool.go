package capacity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Pool is where nodes may be bought: a NodePool, a legacy Provisioner or an inline pool, in one form.
type Pool struct {
	Name   string
	Weight int32
	// NodeClass is the name under which the cloud knows the provider configuration.
	NodeClass string
	// Replicas is how many nodes a static pool keeps, whoever asks for them; nil: nodes are built for pods. Pods run on its nodes
	// like on any other, but none is built for them.
	Replicas *int64
	// Schedulers may have nodes built here for their pods, by name; empty: all.
	Schedulers []string
	// Labels every node of the pool carries, including karpenter.sh/nodepool.
	Labels map[string]string
	// Requirements narrow the offers; Labels are part of them as single values.
	Requirements Requirements
	Taints       []corev1.Taint
	// StartupTaints are expected to be removed by somebody else: pods need not tolerate them to be planned here.
	StartupTaints []corev1.Taint
	// Limits caps Used plus what is planned. A resource not listed is not limited. ResourceNodes counts nodes.
	Limits Resources
	// MaxDollars is what the pool's nodes may cost in dollars per hour; 0: any amount.
	MaxDollars float64
	// Used is what live and in-flight nodes take, in-flight ones at their largest possible type.
	Used Resources
	// Types are what the node class can run, not yet narrowed by Requirements.
	Types []*InstanceType
	// Paused is why some of the pool's offers are taken for unavailable though the cloud has them: the spending guard holds them
	// back. Empty: none are.
	Paused string
	// Unready is why the pool can't be used now (its own condition or its node class's); empty when it can.
	Unready string
}

// Serves says whether nodes of the pool may be built for pods of the scheduler; "" stands for pods that are nobody's demand.
func (p *Pool) Serves(scheduler string) bool {
	return len(p.Schedulers) == 0 || scheduler == "" || slices.Contains(p.Schedulers, scheduler)
}

// DaemonSet is a daemon whose pod will run on every node it fits: its room is planned on new nodes and kept on
// initializing ones.
type DaemonSet struct {
	Namespace, Name string
	// Class is the class of its pods: requests, node requirements and tolerations (those the DaemonSet controller adds
	// included). Its pods are counted by the spread and affinity of others, and its anti-affinity keeps others off; where
	// daemons themselves go is not planned.
	Class *Class
}
