package planner

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Unavailable says why a pool has no offering for a node. Retryable: the reason may pass by itself.
type Unavailable struct {
	Why       string
	Retryable bool
}

func (u *Unavailable) Error() string { return u.Why }

// Resolve chooses the offerings for a node that is not bought for pods: those of the pool that hold requests and the daemons' pods,
// chosen as in a plan: cheapest first, of one capacity type, at most MaxFleetTypes types, minValues kept. Limits are ignored. If there
// are none, the error is an *Unavailable.
func Resolve(p *capacity.Pool, requests capacity.Resources, daemons []*capacity.DaemonSet, opts capacity.Options) (*capacity.PlannedNode, error) {
	own := *p
	own.Limits, own.Total, own.Schedulers, own.Replicas, own.ZoneBalance = nil, nil, nil, nil, nil // the view below has no nodes to count
	class := &capacity.Class{Key: "order", Pod: &corev1.Pod{}, Requests: requests.Clone(),
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	if class.Requests[corev1.ResourcePods] == 0 {
		class.Requests[corev1.ResourcePods] = 1 // the packing needs at least one pod
	}
	opts.Effort, opts.Forbidden = 0, nil
	plan := Decide(&capacity.View{Pools: []*capacity.Pool{&own}, Demand: []capacity.Demand{{Class: class, Pods: []capacity.PodRef{{UID: "order"}}}}, DaemonSets: daemons}, opts)
	if len(plan.Nodes) == 0 {
		none := &Unavailable{}
		for _, r := range plan.Refused {
			none.Why, none.Retryable = strings.TrimPrefix(r.Message, p.Name+": "), r.Retryable
		}
		return nil, none
	}
	n := plan.Nodes[0]
	n.Pool, n.Requests = p, requests.Clone()
	for _, d := range n.Daemons {
		n.Requests.Add(d.Class.Requests, 1)
	}
	return n, nil
}
