package disruption

import (
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const (
	reasonExpired   = "Expired"
	reasonBlockEnds = "CapacityBlockEnds"
)

const (
	// leadMost is how long before its time is over the replacement of a node begins: long enough for another node to boot. Nodes that live
	// for less than four times that long are replaced in the last quarter of their life.
	leadMost = 10 * time.Minute
	// avoidMost: a node whose replacement begins within this time is not a target for the pods of another node that is being replaced,
	// because they would soon be moved again. For nodes that live for less than four times that long it is a quarter of their life.
	avoidMost = time.Hour
)

// expiry: the claim's expireAfter is over, or its capacity block ends.
type expiry struct {
	taken  func(*karpv1.NodeClaim) (at time.Time, why string, ok bool) // Config.Taken: when the capacity block ends
	dryRun bool
}

func (expiry) budget() karpv1.DisruptionReason { return "" }

// decide never chooses a node before it is initialized. Otherwise a node that takes longer to boot than it may live would be terminated
// before it was of any use, and so would the next one.
func (e expiry) decide(m *candidate, _ time.Time) (*decision, error) {
	if condition(m.claim, karpv1.ConditionTypeInitialized) == nil {
		return nil, nil
	}
	d := &decision{candidate: m, reason: reasonBlockEnds}
	d.at, d.message, d.cloud = e.taken(m.claim)
	if after := m.claim.Spec.ExpireAfter.Duration; after != nil && *after > 0 {
		// In a dry run a node whose expireAfter is over stays, but EC2 ends it all the same when its capacity block does.
		if expires := m.claim.CreationTimestamp.Add(*after); !d.cloud || expires.Before(d.at) && !e.dryRun {
			d.reason, d.message, d.at, d.cloud = reasonExpired, "its expireAfter is over", expires, false
		}
	} else if !d.cloud {
		return nil, nil
	}
	quarter := d.at.Sub(m.claim.CreationTimestamp.Time) / 4
	d.prepare = d.at.Add(-min(leadMost, quarter))
	d.avoid = d.prepare.Add(-min(avoidMost, quarter))
	return d, nil
}
