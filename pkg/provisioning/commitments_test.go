package provisioning

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/commitments"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
)

// covering returns a coverage with one node that uses all of a commitment of a dollar.
func covering(node string) *capacity.Coverage {
	typ := &capacity.InstanceType{Name: "m5.large", Offers: []capacity.Offer{{Zone: "a", CapacityType: "on-demand", Price: 1, Available: true}}}
	return commitments.New([]capacity.Commitment{{Name: "sp", MicroDollars: 1e6, RateFactor: 1}}).Of([]*capacity.Pool{{Name: "pool", Types: []*capacity.InstanceType{typ}}},
		map[string]*capacity.Claim{node: {Name: node, NodeName: node, Pool: "pool", CreatedAt: time.Unix(1, 0), Launched: true, InstanceType: "m5.large", Zone: "a", CapacityType: "on-demand"}})
}

// Between a proposal and its reservation others may use what was left of a commitment: then nothing is launched, because the node would cost list price.
// Several moves together may use no more than is left either.
func TestMovesCountOnWhatIsLeftNow(t *testing.T) {
	typ := &capacity.InstanceType{Name: "m5.large", Offers: []capacity.Offer{{Zone: "a", CapacityType: "on-demand", Price: 1, Available: true}}}
	pool := &capacity.Pool{Name: "pool", Types: []*capacity.InstanceType{typ}}
	for _, tt := range []struct {
		name     string
		coverage *capacity.Coverage
		reason   consolidation.Reason
		failed   int
	}{
		{"enough for one", covering("old").Without([]string{"old"}), consolidation.Underutilized, 1},
		{"nothing", covering("old"), consolidation.Underutilized, 2},
		{"commitments are gone", nil, consolidation.Underutilized, 2},
		{"nodes that have to go wait for nothing", covering("old"), consolidation.Drifted, 0},
	} {
		c := &Consolidation{}
		v := &View{}
		v.Pools, v.Coverage = []*capacity.Pool{pool}, tt.coverage
		var all []*attempt
		for range 2 {
			n := &capacity.PlannedNode{ID: "new/0", Pool: pool, CapacityType: "on-demand", Offers: []capacity.NodeOffer{{Type: typ, Offer: typ.Offers[0]}}}
			n.Covered = capacity.PlannedUse{Commitment: "sp", Use: 1e6}
			all = append(all, &attempt{Move: &consolidation.Move{Reason: tt.reason, New: []*capacity.PlannedNode{n}}})
		}
		c.match(v, all, nil)
		failed := 0
		for _, a := range all {
			if a.why != "" {
				failed++
			}
		}
		if failed != tt.failed {
			t.Errorf("%s: %d of 2 moves are given up, want %d: %q, %q", tt.name, failed, tt.failed, all[0].why, all[1].why)
		}
	}
}
