package main

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// describeLimit is how long EC2 is asked why an instance has ended.
const describeLimit = 10 * time.Second

// endCauses finds out whether EC2 has taken instances back that have ended. It asks in the background: many may end at a time while EC2 answers
// slowly, and the controllers that end nodes have other nodes to look after meanwhile. Safe for concurrent use.
type endCauses struct {
	claim    func(name string) *capacity.Claim
	describe func(ctx context.Context, id string) (capacity.Instance, error)
	// decided reports whether the cause doesn't matter any more.
	decided func(claim string) bool

	mu    sync.Mutex
	asked map[string]*endCause // by instance ID, until the claim is gone
}

// endCause is why one instance has ended. taken: EC2 took it back (a spot interruption, say). known: taken is valid, because EC2 has answered or
// could not be asked in time.
type endCause struct {
	claim        string
	known, taken bool
}

// known reports whether it is known why a claim's instance has ended, and asks EC2 if not. After describeLimit at the latest it counts as known.
func (e *endCauses) known(ctx context.Context, claim string) bool {
	c := e.claim(claim)
	if c == nil || c.ProviderID == "" || e.decided(claim) {
		return true
	}
	id := capacity.InstanceID(c.ProviderID)
	e.mu.Lock()
	defer e.mu.Unlock()
	if cause := e.asked[id]; cause != nil {
		return cause.known
	}
	for id, cause := range e.asked {
		if cause.known && e.claim(cause.claim) == nil {
			delete(e.asked, id)
		}
	}
	cause := &endCause{claim: claim}
	if e.asked == nil {
		e.asked = map[string]*endCause{}
	}
	e.asked[id] = cause
	go e.ask(ctx, cause, id, c.CapacityType == karpv1.CapacityTypeSpot)
	return false
}

// ask asks EC2 why an instance has ended. If EC2 doesn't answer, a spot instance is assumed to have been taken back.
func (e *endCauses) ask(ctx context.Context, cause *endCause, id string, spot bool) {
	ctx, cancel := context.WithTimeout(ctx, describeLimit)
	defer cancel()
	inst, err := e.describe(ctx, id)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not find out why an instance has ended", "instance", id, "takenBack", spot, "err", err)
		inst.Taken = spot
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	cause.known, cause.taken = true, inst.Taken
}

// taken reports whether EC2 has taken a claim's instance back, as far as is known. It counts as taken back if the claim is gone.
func (e *endCauses) taken(claim string) bool {
	c := e.claim(claim)
	if c == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	cause := e.asked[capacity.InstanceID(c.ProviderID)]
	if cause == nil || !cause.known {
		return c.CapacityType == karpv1.CapacityTypeSpot
	}
	return cause.taken
}
