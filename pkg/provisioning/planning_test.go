package provisioning

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A limit that cuts a plan removes the nodes of pods with the lowest priority: if it removed others, their pods would take the capacity of
// these.
func TestNodesOfUrgentPodsComeFirst(t *testing.T) {
	plan := &capacity.Plan{}
	for node, priorities := range map[string][]int32{"a": {0}, "b": {-5, 1000}, "c": {0, 0}, "d": {2000}, "e": {-5}} {
		for _, p := range priorities {
			plan.Placements = append(plan.Placements, capacity.Placement{Node: node, Class: &capacity.Class{Priority: p}})
		}
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		plan.Nodes = append(plan.Nodes, &capacity.PlannedNode{ID: id})
	}
	byPriority(plan)
	var got []string
	for _, n := range plan.Nodes {
		got = append(got, n.ID)
	}
	if diff := cmp.Diff([]string{"d", "b", "a", "c", "e"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
