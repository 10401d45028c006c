package staticpool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const doNotDisrupt = "karpenter.sh/do-not-disrupt"

// Nodes calls visit with each node of the scheduler's cache.
type Nodes func(ctx context.Context, visit func(*capacity.Node, *corev1.Node)) error

// Judge returns what it costs to end a pod early (zero or less: the pod doesn't keep a node from being removed), and whether the pod asks
// not to be disrupted.
type Judge func(pod *corev1.Pod, now time.Time) (cost float64, protected bool)

// occupancy knows what would be disrupted with nodes.
type occupancy struct {
	nodes Nodes
	judge Judge
	clock clock.PassiveClock
}

// of returns what would be disrupted with each of the nodes.
func (o *occupancy) of(ctx context.Context, liveClaims map[string]*capacity.Claim) ([]capacity.StaticNode, error) {
	now := o.clock.Now()
	pods := map[string][]*corev1.Pod{}
	protected := map[string]bool{}
	if err := o.nodes(ctx, func(n *capacity.Node, object *corev1.Node) {
		pods[n.Name], protected[n.Name] = n.Pods, object.Annotations[doNotDisrupt] == "true"
	}); err != nil {
		return nil, fmt.Errorf("taking a snapshot of the scheduler's cache: %w", err)
	}
	out := make([]capacity.StaticNode, 0, len(liveClaims))
	for name, c := range liveClaims {
		n := capacity.StaticNode{Claim: name, CreatedAt: c.CreatedAt, Launched: c.Launched, Drifted: c.Drifted, Protected: c.DoNotDisrupt || protected[c.NodeName]}
		for _, pod := range pods[c.NodeName] {
			cost, asks := o.judge(pod, now)
			n.Protected = n.Protected || asks
			if cost > 0 {
				n.Occupied = true
				n.Cost += cost
			}
		}
		n.Cost *= c.Remaining(now)
		out = append(out, n)
	}
	return out, nil
}
