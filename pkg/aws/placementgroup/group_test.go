package placementgroup

import (
	"errors"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

func TestPartitionOf(t *testing.T) {
	g := Group{name: "p", partitions: 3}
	for value, want := range map[string]int32{"1": 1, "3": 3} {
		if n, err := g.Partition(map[string]string{ec2nc.LabelPlacementGroupPartition: value}); n != want || err != nil {
			t.Errorf("%s: %d, %v", value, n, err)
		}
	}
	for _, bad := range []string{"0", "4", "-1", "x", ""} {
		if _, err := g.Partition(map[string]string{ec2nc.LabelPlacementGroupPartition: bad}); !errors.Is(err, errPartition) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
