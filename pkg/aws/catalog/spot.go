package catalog

import (
	"context"
	"fmt"
	"strconv"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

var spot = priceSource{part: Spot, spot: true, complete: true, every: func(c Config) time.Duration { return c.SpotEvery }, read: readSpot}

// readSpot returns the latest spot price of every type and zone.
func readSpot(ctx context.Context, c calls, _ Config, now time.Time) (Prices, error) {
	out := Prices{}
	newest := map[Pool]time.Time{}
	pages := ec2.NewDescribeSpotPriceHistoryPaginator(c.hardware, &ec2.DescribeSpotPriceHistoryInput{
		// With a start time of now, EC2 returns one price for each pool: the one in force.
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
