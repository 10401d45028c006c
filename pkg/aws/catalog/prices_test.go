package catalog

import (
	"strings"
	"testing"
	"time"
)

func TestTypesWithoutAPriceAreNotOffered(t *testing.T) {
	f := &Region{Prices: map[string]Prices{OnDemand: {{"c5.large", ""}: 1}, Spot: {{"m5.large", "a"}: 0.02}}}
	for _, tt := range []struct {
		zone string
		spot bool
		want bool
	}{{"a", false, false}, {"a", true, true}, {"b", true, false}} {
		if _, ok := f.Price(&Hardware{Name: "m5.large"}, tt.zone, tt.spot); ok != tt.want {
			t.Errorf("m5.large in %s, spot %v: priced is %v", tt.zone, tt.spot, ok)
		}
	}
}

// The price list can't be asked for in every partition. No call is made there, and nothing has failed.
func TestPartitionsWithoutAPriceList(t *testing.T) {
	for _, region := range []string{"us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1", "us-isof-south-1", "eusc-de-east-1"} {
		if prices, err := readOnDemand(t.Context(), calls{}, region, time.Time{}); prices != nil || err != nil {
			t.Errorf("%s: %v, %v", region, prices, err)
		}
	}
	for _, region := range []string{"us-east-1", "us-west-2", "eu-central-1", "cn-north-1", "ap-south-1", "il-central-1"} {
		if !hasPriceList(region) {
			t.Errorf("%s has no price list", region)
		}
	}
}

func TestPriceOf(t *testing.T) {
	item := `{"product":{"productFamily":"Compute Instance","attributes":{"instanceType":"m5.large"}},
		"terms":{"OnDemand":{"A.B":{"priceDimensions":{"A.B.C":{"pricePerUnit":{"USD":"0.0960000000"}}}}}}}`
	if name, price, ok := priceOf(item, "USD"); name != "m5.large" || price != 0.096 || !ok {
		t.Errorf("%s %v %v", name, price, ok)
	}
	for _, bad := range []string{"", "{}", strings.Replace(item, "0.0960000000", "0.0000000000", 1), strings.Replace(item, "USD", "CNY", 1)} {
		if _, _, ok := priceOf(bad, "USD"); ok {
			t.Errorf("a price in %q", bad)
		}
	}
}
