package catalog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

func TestTypesWithoutAPriceAreNotOffered(t *testing.T) {
	f := &Region{Prices: AllRead(Prices{{"c5.large", ""}: 1}, Prices{{"m5.large", "a"}: 0.02})}
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

// A source that isn't complete replaces prices of the sources after it. While it is not known theirs count, and nothing is estimated.
func TestASourceReplacesSomePrices(t *testing.T) {
	const some = "prices of some types"
	with(t, priceSource{part: some})
	f := &Region{Prices: AllRead(Prices{{"m5.large", ""}: 0.096, {"c5.large", ""}: 0.085}, Prices{})}
	delete(f.Prices, some)
	check := func(when, name string, want float64) {
		t.Helper()
		if p, ok := f.Price(&Hardware{Name: name}, "a", false); ok != (want > 0) || p != want {
			t.Errorf("%s: %s costs %v, %v; want %v", when, name, p, ok, want)
		}
	}
	check("not known", "m5.large", 0.096)
	check("not known", "x9.large", 0)
	f.setPrices(some, Prices{{"m5.large", ""}: 0.05, {"x9.large", ""}: 1})
	check("known", "m5.large", 0.05)
	check("known", "c5.large", 0.085)
	check("known", "x9.large", 1)

	k := NewCache(Config{}, clock.RealClock{}, nil, nil, nil)
	clear(k.problems)
	k.problems[some] = &unknown{some, errors.New("no such file")}
	if got := k.Status(); got == nil || got.Error() != "prices of some types: unknown: no such file" {
		t.Errorf("status: %v", got)
	}
}

// A catalogue from a file has the prices that it has, however many sources there are: types without one are not offered.
func TestPricesOfAFileAreKnown(t *testing.T) {
	with(t, priceSource{part: "list of another seller", complete: true}, priceSource{part: "auction", spot: true, complete: true})
	if f := (&File{}).Region(); !f.known(false) || !f.known(true) {
		t.Errorf("on demand %v, spot %v", f.known(false), f.known(true))
	}
	if f := (&Region{Prices: map[string]Prices{OnDemand: {}, Spot: {}}}); f.known(false) || f.known(true) {
		t.Error("prices are known before the new sources have been read")
	}
}

// with adds price sources before the others for the test.
func with(t *testing.T, more ...priceSource) {
	all := priceSources
	t.Cleanup(func() { priceSources = all })
	priceSources = append(more, all...)
}

// The price list can't be asked for in every partition. No call is made there, and nothing has failed.
func TestPartitionsWithoutAPriceList(t *testing.T) {
	for _, region := range []string{"us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1", "us-isof-south-1", "eusc-de-east-1"} {
		if prices, err := readOnDemand(t.Context(), calls{}, Config{Region: region}, time.Time{}); prices != nil || err != nil {
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
