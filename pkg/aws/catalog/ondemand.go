package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
)

var onDemand = priceSource{part: OnDemand, complete: true, every: func(c Config) time.Duration { return c.OnDemandEvery }, read: readOnDemand}

// readOnDemand returns the on-demand Linux price of every type. Bare metal is listed as another product, under dedicated tenancy. In a region
// without a price list it returns nil, as if prices had not been read yet: they stay estimated.
func readOnDemand(ctx context.Context, c calls, cfg Config, _ time.Time) (Prices, error) {
	region := cfg.Region
	if !hasPriceList(region) {
		return nil, nil
	}
	out := Prices{}
	for _, product := range []struct{ family, tenancy string }{
		{"Compute Instance (bare metal)", "Dedicated"}, {"Compute Instance", "Shared"},
	} {
		match := func(field, value string) pricingtypes.Filter {
			return pricingtypes.Filter{Field: awssdk.String(field), Type: pricingtypes.FilterTypeTermMatch, Value: awssdk.String(value)}
		}
		pages := pricing.NewGetProductsPaginator(c.pricing, &pricing.GetProductsInput{
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
					out[Pool{InstanceType: name}] = price
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("getting on-demand prices: the price list has none for region %s", region)
	}
	return out, nil
}

// hasPriceList reports whether the price list can be asked for with credentials of the region's partition. Only the commercial one and China
// have an endpoint for it (docs.aws.amazon.com/general/latest/gr/billing.html); in GovCloud, isolated and sovereign partitions on-demand
// prices stay estimates.
func hasPriceList(region string) bool {
	for _, partition := range []string{"us-gov-", "us-iso", "eu-iso", "eusc-"} {
		if strings.HasPrefix(region, partition) {
			return false
		}
	}
	return true
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
