package aws

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// EC2 doesn't know the prices that overlays set, so the request contains the order of the offerings.
func TestPricesOfOverlaysOnTheWire(t *testing.T) {
	w := newWorld(t)
	fleets := w.forms("CreateFleet")
	w.SetNodeClass(nodeClass())
	w.types("default")
	for _, ct := range []string{"on-demand", "spot"} {
		v := newBatch(ct, ct, 1, offer("c5.large", "a", ct), offer("m5.large", "a", ct), offer("m5.large", "b", ct), offer("m5.xlarge", "a", ct))
		v.Prices = []float64{0.01, 0.02, 0.02, 0.5}
		if _, err := w.Launch(w.ctx, w.prepared(v)); err != nil {
			t.Fatal(err)
		}
	}
	for i, strategy := range []map[string]string{
		{"OnDemandOptions.AllocationStrategy": "prioritized"}, {"SpotOptions.AllocationStrategy": "capacity-optimized-prioritized"},
	} {
		form := fleets()[i]
		got, options := map[string]string{}, map[string]string{}
		for k, v := range form {
			if strings.HasSuffix(k, "AllocationStrategy") {
				options[k] = v[0]
			}
			if at, ok := strings.CutSuffix(k, "Priority"); ok {
				got[form[at+"InstanceType"][0]+" "+form[at+"AvailabilityZone"][0]] = v[0]
			}
		}
		want := map[string]string{"c5.large us-west-2a": "0", "m5.large us-west-2a": "1", "m5.large us-west-2b": "1", "m5.xlarge us-west-2a": "2"}
		if diff := cmp.Diff([]any{want, strategy}, []any{got, options}); diff != "" {
			t.Errorf("priorities and strategy (-want +got):\n%s", diff)
		}
	}
}

// A type for which AWS publishes no price is listed, so that an overlay can set one; without that it is never launched.
func TestTypesWithoutPrice(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	f := *w.catalogue.Region()
	onDemand, spot := maps.Clone(f.Prices[catalog.OnDemand]), maps.Clone(f.Prices[catalog.Spot])
	f.Prices = catalog.AllRead(onDemand, spot)
	delete(onDemand, catalog.Pool{InstanceType: "m5.large"})
	for _, zone := range []string{"a", "b", "c"} {
		delete(spot, catalog.Pool{InstanceType: "m5.large", Zone: "us-west-2" + zone})
		delete(spot, catalog.Pool{InstanceType: "c5.large", Zone: "us-west-2" + zone})
	}
	r := w.classes.get("default").resolved.Load()
	offers := func(name string) []capacity.Offer { return offersOf(r, f.Find(name), &f, zonesOf(r)) }
	if got := offers("m5.large"); len(got) == 0 || slices.ContainsFunc(got, func(o capacity.Offer) bool { return !math.IsInf(o.Price, 1) }) {
		t.Errorf("without any price: %v, want offers that cost +Inf", got)
	}
	if got := offers("c5.large"); len(got) == 0 || slices.ContainsFunc(got, func(o capacity.Offer) bool { return o.CapacityType == "spot" || math.IsInf(o.Price, 1) }) {
		t.Errorf("without a spot price: %v, want on-demand only", got)
	}
}
