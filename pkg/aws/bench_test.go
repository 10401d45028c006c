package aws

import (
	"fmt"
	"maps"
	"testing"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/unavailable"
	"github.com/dovetail-scheduler/dovetail/test/fixtures"
)

// fixed is a catalogue whose data is what a test says.
type fixed struct {
	regions
	now *catalog.Region
}

func (f fixed) Region() *catalog.Region { return f.now }

// region returns region data of a large region: 1,300 types in 4 zones.
func region() *catalog.Region {
	onDemand, spot := catalog.Prices{}, catalog.Prices{}
	f := &catalog.Region{
		Zones: map[string][]string{}, Prices: catalog.AllRead(onDemand, spot), Settled: true,
	}
	for i := range 1300 {
		h := *fixtures.M5Large
		h.Name, h.Spot, h.OnDemand = fmt.Sprintf("m5.t%04d", i), true, true
		h.Family, h.Size, h.Category, h.Generation = "m5", h.Name[3:], "m", "5"
		f.Types = append(f.Types, &h)
		onDemand[catalog.Pool{InstanceType: h.Name}] = 1
		for _, z := range []string{"a", "b", "c", "d"} {
			f.Zones[h.Name] = append(f.Zones[h.Name], z)
			spot[catalog.Pool{InstanceType: h.Name, Zone: z}] = 0.5
		}
	}
	return f
}

func BenchmarkInstanceTypes(b *testing.B) {
	cfg, err := Config{Region: "us-west-2", ClusterName: "c"}.complete()
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(cfg, sdk.NewClients(awsConfigForTests(), clock.RealClock{}))
	if err != nil {
		b.Fatal(err)
	}
	f := region()
	catalogue := p.catalogue
	p.catalogue = fixed{catalogue, f}
	nc := nodeClass()
	c := newClass(nc)
	p.classes.byName[nc.Name] = c
	s, _ := nodesize.SettingsOf(&nc.Spec, bootstrap.AL2023, cfg.sizes())
	c.resolved.Store(&resolved{class: nc, family: bootstrap.AL2023, settings: s, images: []image{{id: "ami-1", arch: "amd64"}},
		subnets: []network.Subnet{{ID: "s-a", Zone: "a", ZoneID: "az1"}, {ID: "s-b", Zone: "b", ZoneID: "az2"},
			{ID: "s-c", Zone: "c", ZoneID: "az3"}, {ID: "s-d", Zone: "d", ZoneID: "az4"}}})

	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if types, err := p.InstanceTypes(nc.Name); len(types) != 1300 {
				b.Fatal(len(types), err)
			}
		}
	})
	b.Run("oneOfferExhausted", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			p.Set(unavailable.Unavailable(unavailable.Scope{CapacityType: "spot", InstanceType: f.Types[i%1300].Name, Zone: "a"}))
			p.version.Add(1)
			_, _ = p.InstanceTypes(nc.Name)
		}
	})
	b.Run("oneSpotPriceMoved", func(b *testing.B) {
		b.ReportAllocs()
		_, _ = p.InstanceTypes(nc.Name)
		for i := 0; b.Loop(); i++ {
			g := *p.catalogue.Region()
			spot := maps.Clone(g.Prices[catalog.Spot])
			spot[catalog.Pool{InstanceType: f.Types[i%1300].Name, Zone: "a"}] += 0.001
			g.Prices = catalog.AllRead(g.Prices[catalog.OnDemand], spot)
			p.catalogue = fixed{catalogue, &g}
			p.version.Add(1)
			_, _ = p.InstanceTypes(nc.Name)
		}
	})
	b.Run("allAnew", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g := *f
			p.catalogue = fixed{catalogue, &g}
			p.version.Add(1)
			p.classes.get(nc.Name).offers.now.Store(nil)
			_, _ = p.InstanceTypes(nc.Name)
		}
	})
}
