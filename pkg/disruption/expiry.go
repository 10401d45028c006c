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
	// leadMost is how long before the end of a node its replacement begins: long enough for another node to boot. Nodes that live
	// for less than four times that long are replaced in the last quarter of their life.
	leadMost = 10 * time.Minute
	// avoidMost: a node whose replacement begins within this time is not a target for the pods of another node that is being replaced,
	// because they would soon be moved again. For nodes that live for less than four times that long it is a quarter of their life.
	avoidMost = time.Hour
)

// expiry: the claim's expireAfter is over.
type expiry struct{}

func (expiry) budget() karpv1.DisruptionReason { return "" }

func (expiry) decide(m *candidate, _ time.Time) (*decision, error) {
	after := m.claim.Spec.ExpireAfter.Duration
	if after == nil || *after <= 0 {
		return nil, nil
	}
	return inTime(&decision{candidate: m, reason: reasonExpired, message: "its expireAfter is over", at: m.claim.CreationTimestamp.Add(*after)}), nil
}

// blockEnd: the node's capacity block ends.
type blockEnd struct {
	taken func(*karpv1.NodeClaim) (at time.Time, why string, ok bool) // when the cloud takes the capacity back (Config.Taken)
}

func (blockEnd) budget() karpv1.DisruptionReason { return "" }

func (b blockEnd) decide(m *candidate, _ time.Time) (*decision, error) {
	at, why, ok := b.taken(m.claim)
	if !ok {
		return nil, nil
	}
	return inTime(&decision{candidate: m, reason: reasonBlockEnds, message: why, at: at, cloud: true}), nil
}

// inTime sets when the replacement begins of a node whose end is known long before. It returns nil for one that isn't initialized: a node that takes
// longer to boot than it may live would be terminated before it was of any use, and so would the next one.
func inTime(d *decision) *decision {
	if condition(d.claim, karpv1.ConditionTypeInitialized) == nil {
		return nil
	}
	quarter := d.at.Sub(d.claim.CreationTimestamp.Time) / 4
	d.prepare = d.at.Add(-min(leadMost, quarter))
	d.avoid = d.prepare.Add(-min(avoidMost, quarter))
	return d
}
