package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Fetch reads everything that a catalogue file holds from AWS, by the calls that the scheduler's provider makes. Types without
// a price are included, without one.
func Fetch(ctx context.Context, c sdk.Clients, region string, now time.Time) (*File, error) {
	var (
		types  []Type
		zones  map[string][]string
		prices = make([]Prices, len(priceSources))
	)
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		return describeTypes(ctx, c.EC2, func(i *ec2types.InstanceTypeInfo) {
			if t := typeOf(i); t.valid() == nil {
				types = append(types, t) // types without a size or network can't be nodes
			}
		})
	})
	all.Go(func() (err error) {
		zones, err = fetchZones(ctx, c.EC2)
		return err
	})
	for i, source := range priceSources {
		all.Go(func() (err error) {
			prices[i], err = source.read(ctx, calls{c.EC2, c.Pricing}, Config{Region: region}, now)
			return err
		})
	}
	switch err := all.Wait(); {
	case err == nil:
	case sdk.IsMissingCredentials(err):
		return nil, fmt.Errorf("reading the catalogue of %s: no AWS credentials found (environment, shared files, SSO, instance role): %w", region, err)
	case sdk.IsUnreachable(err):
		var op *net.OpError
		errors.As(err, &op)
		return nil, fmt.Errorf("reading the catalogue of %s: AWS can't be reached: %w", region, op)
	default:
		return nil, fmt.Errorf("reading the catalogue of %s: %w", region, err)
	}
	f := &File{Meta: Meta{Region: region, Source: "EC2 and Price List APIs", Read: now.UTC().Format(time.RFC3339)}, Types: types}
	known := &Region{}
	for i, source := range priceSources {
		known.setPrices(source.part, prices[i])
	}
	for i := range f.Types {
		t := &f.Types[i]
		t.Zones = zones[t.Name]
		if p, ok := known.listed(t.Name, "", false); ok {
			t.OnDemand = &p
		}
		t.takeSpot(known)
	}
	slices.SortFunc(f.Types, func(a, b Type) int { return cmp.Compare(a.Name, b.Name) })
	return f, nil
}

func (t *Type) takeSpot(f *Region) {
	sum := 0.0
	for _, zone := range t.Zones {
		p, ok := f.listed(t.Name, zone, true)
		if !ok {
			continue
		}
		if t.SpotByZone == nil {
			t.SpotByZone = map[string]float64{}
		}
		t.SpotByZone[zone] = p
		t.SpotPools = append(t.SpotPools, p)
		sum += p
	}
	if n := len(t.SpotPools); n > 0 {
		mean := sum / float64(n)
		t.Spot = &mean
		slices.Sort(t.SpotPools)
	}
}
