package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"

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

// fetchSpot returns the latest spot price of every type and zone.
func fetchSpot(ctx context.Context, api sdk.HardwareAPI, now time.Time) (map[Pool]float64, error) {
	out := map[Pool]float64{}
	newest := map[Pool]time.Time{}
	pages := ec2.NewDescribeSpotPriceHistoryPaginator(api, &ec2.DescribeSpotPriceHistoryInput{
		// From now on: for each pool EC2 returns the price in force.
		StartTime:           awssdk.Time(now),
		ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"},
		MaxResults:          awssdk.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describing spot price history: %w", err)
		}
		for _, s := range page.SpotPriceHistory {
			price, err := strconv.ParseFloat(awssdk.ToString(s.SpotPrice), 64)
			key := Pool{string(s.InstanceType), awssdk.ToString(s.AvailabilityZone)}
			if err != nil || price <= 0 || awssdk.ToTime(s.Timestamp).Before(newest[key]) {
				continue
			}
			out[key], newest[key] = price, awssdk.ToTime(s.Timestamp)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("describing spot price history: EC2 returned none")
	}
	return out, nil
}

// fetchOnDemand returns the on-demand Linux price of every type. Bare metal is listed as another product, under dedicated tenancy.
func fetchOnDemand(ctx context.Context, api sdk.Pricing, region string) (map[string]float64, error) {
	out := map[string]float64{}
	for _, product := range []struct{ family, tenancy string }{
		{"Compute Instance (bare metal)", "Dedicated"}, {"Compute Instance", "Shared"},
	} {
		match := func(field, value string) pricingtypes.Filter {
			return pricingtypes.Filter{Field: awssdk.String(field), Type: pricingtypes.FilterTypeTermMatch, Value: awssdk.String(value)}
		}
		pages := pricing.NewGetProductsPaginator(api, &pricing.GetProductsInput{
			ServiceCode: awssdk.String("AmazonEC2"), MaxResults: awssdk.Int32(100),
			Filters: []pricingtypes.Filter{
				match("regionCode", region), match("operatingSystem", "Linux"), match("preInstalledSw", "NA"),
				match("capacitystatus", "Used"), match("marketoption", "OnDemand"),
				match("productFamily", product.family), match("tenancy", product.tenancy),
			},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("getting on-demand prices: %w", err)
			}
			for _, item := range page.PriceList {
				if name, price, ok := priceOf(item, currency(region)); ok {
					out[name] = price
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("getting on-demand prices: the price list has none for region %s", region)
	}
	return out, nil
}

func currency(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "CNY"
	}
	return "USD"
}

// priceOf reads one product of the price list.
func priceOf(item, currency string) (name string, price float64, ok bool) {
	var p struct {
		Product struct{ Attributes struct{ InstanceType string } }
		Terms   struct {
			OnDemand map[string]struct {
				PriceDimensions map[string]struct {
					PricePerUnit map[string]string
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(item), &p); err != nil || p.Product.Attributes.InstanceType == "" {
		return "", 0, false
	}
	for _, term := range p.Terms.OnDemand {
		for _, d := range term.PriceDimensions {
			if v, err := strconv.ParseFloat(d.PricePerUnit[currency], 64); err == nil && v > price {
				price = v
			}
		}
	}
	return p.Product.Attributes.InstanceType, price, price > 0
}
