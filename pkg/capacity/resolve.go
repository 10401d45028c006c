package capacity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Resolve finds what a node that no pod asks for may be bought as: the offers of the pool that hold requests and the pods of
// daemons, chosen as a plan chooses them: cheapest first, of one capacity type, at most MaxFleetTypes types, minValues kept.
// Limits are not looked at. Without a node, why says what stands in the way, and retry whether that may pass by itself.
func Resolve(p *Pool, requests Resources, daemons []*DaemonSet, opts Options) (n *PlannedNode, why string, retry bool) {
	own := *p
	own.Limits, own.Schedulers, own.Replicas = nil, nil, nil
	class := &Class{Key: "order", Pod: &corev1.Pod{}, Requests: requests.Clone(),
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	if class.Requests[corev1.ResourcePods] == 0 {
		class.Requests[corev1.ResourcePods] = 1 // nothing at all can't be packed
	}
	opts.Effort, opts.Forbidden = 0, nil
	plan := Decide(&View{Pools: []*Pool{&own}, Demand: []Demand{{Class: class, Pods: []PodRef{{UID: "order"}}}}, DaemonSets: daemons}, opts)
	if len(plan.Nodes) == 0 {
		for _, r := range plan.Refused {
			why, retry = strings.TrimPrefix(r.Message, p.Name+": "), r.Retryable
		}
		return nil, why, retry
	}
	n = plan.Nodes[0]
	n.Pool, n.Requests = p, requests.Clone()
	for _, d := range n.Daemons {
		n.Requests.Add(d.Class.Requests, 1)
	}
	return n, "", false
}
