package disruption

import (
	"fmt"
	"time"

	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/annotations"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/rebalance"
)

// rebalanceMove: EC2 recommends to leave the node's spot capacity, and the pool asks for such nodes to be replaced.
type rebalanceMove struct {
	settings *annotations.Reader
	clock    clock.Clock
}

func (rebalanceMove) name() consolidation.Reason { return consolidation.RebalanceRecommended }

func (r rebalanceMove) due(m *candidate, now time.Time) (since time.Time, yes bool) {
	since, yes = rebalance.Due(m.claim, now)
	return since, yes && r.settings.Rebalance(m.pool)
}

func (r rebalanceMove) allowed(pool *karpv1.NodePool, total int) (n int, asked bool) {
	return rebalance.Allowed(pool, r.clock, total), r.settings.Rebalance(pool)
}

func (rebalanceMove) text(*candidate) string { return "EC2 recommends to leave its spot capacity" }

func (rebalanceMove) clause() string { return "whose spot capacity EC2 recommends to leave" }

func (r rebalanceMove) over(mv *move) error {
	for _, src := range mv.sources {
		if !r.settings.Rebalance(src.pool) {
			return fmt.Errorf("NodePool %s doesn't ask any more for nodes to be replaced whose spot capacity EC2 recommends to leave", src.pool.Name)
		}
	}
	return nil
}
