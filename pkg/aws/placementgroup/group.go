package placementgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/lookup"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Group is the placement group of a class; the zero value: it has none.
type Group struct {
	ID, name, strategy string
	partitions         int64
}

// Find looks up the class's placement group.
func Find(ctx context.Context, api sdk.NetworkAPI, spec *ec2nc.EC2NodeClassSpec) (Group, error) {
	in, said := &ec2.DescribePlacementGroupsInput{}, ""
	if s := spec.PlacementGroupSelector; s.ID != nil {
		in.GroupIds, said = []string{*s.ID}, "has the id "+*s.ID
	} else {
		in.GroupNames, said = []string{awssdk.ToString(s.Name)}, "is called "+awssdk.ToString(s.Name)
	}
	none := lookup.Unusable("spec.placementGroupSelector: no placement group " + said)
	out, err := api.DescribePlacementGroups(ctx, in)
	switch {
	case sdk.IsPlacementUnknown(err):
		return Group{}, none
	case err != nil:
		return Group{}, fmt.Errorf("describing placement groups: %w", err)
	case len(out.PlacementGroups) == 0:
		return Group{}, none
	}
	g := &out.PlacementGroups[0]
	if g.State != ec2types.PlacementGroupStateAvailable {
		return Group{}, lookup.Unusablef("spec.placementGroupSelector: placement group %s is %s", awssdk.ToString(g.GroupName), g.State)
	}
	return Group{
		ID: awssdk.ToString(g.GroupId), name: awssdk.ToString(g.GroupName), strategy: string(g.Strategy), partitions: int64(awssdk.ToInt32(g.PartitionCount)),
	}, nil
}

// Takes reports whether the group accepts instances of the type at all: not every strategy accepts every type.
func (g Group) Takes(h *catalog.Hardware) bool {
	return g.ID == "" || len(h.Strategies) == 0 || slices.Contains(h.Strategies, g.strategy)
}

// errPartition means that a pool asks for a partition that doesn't exist.
var errPartition = errors.New("no such partition")

// Partition returns the partition that the labels of a launch ask for; 0: EC2 chooses, evenly.
func (g Group) Partition(labels map[string]string) (int32, error) {
	asked, ok := labels[ec2nc.LabelPlacementGroupPartition]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(asked, 10, 32)
	if err != nil || n < 1 || n > g.partitions {
		return 0, fmt.Errorf("%w: %s=%s, placement group %q has %d", errPartition, ec2nc.LabelPlacementGroupPartition, asked, g.name, g.partitions)
	}
	return int32(n), nil
}
