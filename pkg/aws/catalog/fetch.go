package catalog

import (
	"context"
	"fmt"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// fetchTypes returns every instance type that can be a node, sorted by name.
func fetchTypes(ctx context.Context, api sdk.HardwareAPI) ([]*Hardware, error) {
	var out []*Hardware
	err := describeTypes(ctx, api, func(i *ec2types.InstanceTypeInfo) {
		if h, ok := HardwareOf(i); ok {
			out = append(out, h)
		}
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("describing instance types: EC2 returned none")
	}
	slices.SortFunc(out, byName)
	return out, nil
}

// describeTypes calls each for every instance type that can be a node.
func describeTypes(ctx context.Context, api sdk.HardwareAPI, each func(*ec2types.InstanceTypeInfo)) error {
	pages := ec2.NewDescribeInstanceTypesPaginator(api, &ec2.DescribeInstanceTypesInput{
		Filters: []ec2types.Filter{
			sdk.Filter("supported-virtualization-type", "hvm"),
			sdk.Filter("processor-info.supported-architecture", "x86_64", "arm64"),
		},
		MaxResults: awssdk.Int32(100),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("describing instance types: %w", err)
		}
		for i := range page.InstanceTypes {
			each(&page.InstanceTypes[i])
		}
	}
	return nil
}

// fetchZones returns the region's zones in which each type is offered.
func fetchZones(ctx context.Context, api sdk.HardwareAPI) (map[string][]string, error) {
	out := map[string][]string{}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(api, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone, MaxResults: awssdk.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describing instance type offerings: %w", err)
		}
		for _, o := range page.InstanceTypeOfferings {
			out[string(o.InstanceType)] = append(out[string(o.InstanceType)], awssdk.ToString(o.Location))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("describing instance type offerings: EC2 returned none")
	}
	for _, zones := range out {
		slices.Sort(zones)
	}
	return out, nil
}
