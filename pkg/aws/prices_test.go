package aws

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/fixtures"
)

func TestPricesUnknown(t *testing.T) {
	refused := func(*sim.Request) *sim.Fault {
		return &sim.Fault{Code: "AccessDeniedException", Message: "not for you"}
	}
	var allow []func()
	w := newWorldAfter(t, func(s *sim.Sim) {
		allow = append(allow, s.Before("GetProducts", refused), s.Before("DescribeSpotPriceHistory", refused))
	})
	w.SetNodeClass(nodeClass())
	types := w.types("default")
	for _, o := range typeOf(types, "m5.large").Offers {
		// 2 cores x 0.034 + 8 GiB x 0.0035; half of it on spot
		want := map[string]float64{"on-demand": 0.096, "spot": 0.048}[o.CapacityType]
		if math.Abs(o.Price-want) > 1e-9 || !o.Available {
			t.Errorf("%s offer %+v, want about $%v", o.CapacityType, o, want)
		}
	}
	err := w.Status()
	if err == nil {
		t.Fatal("all is well")
	}
	if diff := cmp.Diff([]string{
		"on-demand prices: unknown: AccessDeniedException: not for you; instance types are ordered by prices estimated from their sizes",
		"spot prices: unknown: AccessDeniedException: not for you; instance types are ordered by prices estimated from their sizes",
	}, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	// Then the prices are readable.
	for _, f := range allow {
		f()
	}
	for deadline := time.After(60 * time.Second); w.Status() != nil; {
		select {
		case <-w.changed:
		case <-deadline:
			t.Fatal(w.Status())
		}
	}
	price := typeOf(w.types("default"), "m5.large").Offers[0].Price
	if price == 0.096 && typeOf(w.types("default"), "c5.large").Offers[0].Price == catalog.Estimate(fixtures.M5Large) {
		t.Error("still estimated")
	}
}

// In GovCloud the price list can't be asked for, so on-demand instances are offered at the estimate, and the metric says so.
func TestPricesInARegionWithoutAPriceList(t *testing.T) {
	w := newWorld(t, func(c *Config, s *sim.Config) { c.Region, s.Region = "us-gov-west-1", "us-gov-west-1" })
	w.SetNodeClass(nodeClass())
	for deadline := time.After(60 * time.Second); w.Status() != nil; {
		select {
		case <-w.changed:
		case <-deadline:
			t.Fatal(w.Status())
		}
	}
	var onDemand int
	for _, o := range typeOf(w.types("default"), "m5.large").Offers {
		if o.CapacityType != "on-demand" {
			continue
		}
		onDemand++
		if math.Abs(o.Price-0.096) > 1e-9 { // 2 cores x 0.034 + 8 GiB x 0.0035
			t.Errorf("on-demand offering %+v, want about $0.096", o)
		}
	}
	if onDemand != 3 {
		t.Errorf("%d on-demand offerings, want one in each zone", onDemand)
	}
	if v := gauge(t, "prices_estimated", "capacity_type", "on-demand"); v != 1 {
		t.Errorf("dovetail_aws_prices_estimated is %v, want 1", v)
	}
	if calls := w.sim.Calls("GetProducts"); len(calls) > 0 {
		t.Errorf("%d calls to a price list that doesn't exist", len(calls))
	}
}

// Where prices are known, the estimate must be close to them: it orders instance types when they aren't.
func TestEstimateFollowsPrices(t *testing.T) {
	w := newWorld(t, allTypes)
	w.SetNodeClass(nodeClass())
	w.types("default")
	f := w.catalogue.Region()
	far := 0
	for _, h := range f.Types {
		price, ok := f.Prices[catalog.OnDemand][catalog.Pool{InstanceType: h.Name}]
		if !ok {
			continue
		}
		if ratio := catalog.Estimate(h) / price; ratio < 0.5 || ratio > 2 {
			far++
			t.Logf("%s costs %.3f, the estimate is %.3f", h.Name, price, catalog.Estimate(h))
		}
	}
	if share := float64(far) / float64(len(f.Types)); share > 0.1 {
		t.Errorf("%.0f %% of the estimates are wrong by a factor of two", share*100)
	}
}

// An unchanged type stays the same object, so that callers need to look at the others only.
func TestOnlyWhatChangedIsMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	before := w.types("default")
	change := func(set func(*catalog.Region)) []*capacity.InstanceType {
		next := *w.catalogue.Region()
		set(&next)
		w.catalogue = fixed{w.catalogue, &next}
		w.bump()
		return w.types("default")
	}
	check := func(what string, now []*capacity.InstanceType, changed ...string) {
		t.Helper()
		if len(now) != len(before) {
			t.Fatalf("%s: %d types, there were %d", what, len(now), len(before))
		}
		for i := range now {
			if same := now[i] == before[i]; same == slices.Contains(changed, now[i].Name) {
				t.Errorf("%s: %s is the same: %v", what, now[i].Name, same)
			}
		}
		if len(changed) == 0 && &now[0] != &before[0] {
			t.Errorf("%s: another slice of the same", what)
		}
		before = now
	}
	moved := func(name string, by float64) func(*catalog.Region) {
		return func(f *catalog.Region) {
			f.Prices = withSpot(f)
			f.Prices[catalog.Spot][catalog.Pool{InstanceType: name, Zone: "us-west-2a"}] *= by
		}
	}
	check("a spot price", change(moved("m5.large", 1.5)), "m5.large")
	if typeOf(before, "m5.large").Labels == nil || typeOf(before, "m5.large").Capacity == nil {
		t.Error("a type with another price has lost its labels or its size")
	}
	check("the same prices, read again", change(func(f *catalog.Region) { f.Prices = withSpot(f) }))
	check("a zone less", change(func(f *catalog.Region) {
		f.Zones = maps.Clone(f.Zones)
		f.Zones["c5.large"] = f.Zones["c5.large"][:2]
	}), "c5.large")
	check("another description", change(func(f *catalog.Region) {
		f.Types = slices.Clone(f.Types)
		i := slices.Index(f.Types, f.Find("m6g.large"))
		other := *f.Types[i]
		other.VCPU++
		f.Types[i] = &other
	}), "m6g.large")
	image := plainImage(w.status("default", isReady("True")))
	w.ObserveNode(cloudprovider.RegisteredNode{InstanceType: "m5.xlarge", ImageID: image, Capacity: ofMemory(15900 * mi)})
	check("a lesson", w.types("default"), "m5.xlarge")
}

// withSpot copies the prices so that those of spot instances can be changed.
func withSpot(f *catalog.Region) map[string]catalog.Prices {
	out := maps.Clone(f.Prices)
	out[catalog.Spot] = maps.Clone(out[catalog.Spot])
	return out
}
