package lifecycle

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// recorder records events.
type recorder struct{ events.EventRecorder }

// event records an event on a claim, and on its Node when there is one.
func (r recorder) event(claim *karpv1.NodeClaim, node *corev1.Node, kind, reason, action, note string, args ...any) {
	if claim != nil {
		r.Eventf(claim, nil, kind, reason, action, note, args...)
	}
	if node != nil {
		r.Eventf(node, nil, kind, reason, action, note, args...)
	}
}

// milestone is a set of things that are reported and counted once per claim, however often a stage is repeated because its outcome could
// not be written, or because the cache doesn't show it yet.
type milestone uint8

const (
	kubeletReported  milestone = 1 << iota // the registered node was passed to Config.Registered
	nodeRegistered                         // the claim's registration was counted
	nodeInitialized                        // the claim's initialization was counted
	nodeDelayed                            // the node's initialization is late, and the claim isn't given up yet
	givingUpReported                       // the claim is about to be given up, and the reason was reported
	instanceUntagged                       // the claim's instance can't be tagged
	claimGivenUp                           // the claim was given up
	claimTerminated                        // the claim has ended
)

// reports remembers which milestones of a claim were reported.
type reports struct{ memory[string, milestone] }

// first marks a milestone as reported, and returns false if it was before.
func (r *reports) first(claim string, what milestone) (first bool) {
	r.update(claim, func(before milestone, _ bool) milestone {
		first = before&what == 0
		return before | what
	})
	return first
}
