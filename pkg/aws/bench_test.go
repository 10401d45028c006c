package aws

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// fixed is a catalogue whose data is what a test says.
type fixed struct {
	regions
	now *regionData
}

func (f fixed) Region() *regionData { return f.now }

// region returns region data of a large region: 1,300 types in 4 zones.
func region() *regionData {
	f := &regionData{zones: map[string][]string{}, onDemand: map[string]float64{}, spot: map[zonalType]float64{}, settled: true}
	for i := range 1300 {
		h := *m5large
		h.name, h.spot, h.onDemand = fmt.Sprintf("m5.t%04d", i), true, true
		h.family, h.size, h.category, h.generation = "m5", h.name[3:], "m", "5"
		f.types = append(f.types, &h)
		f.onDemand[h.name] = 1
		for _, z := range []string{"a", "b", "c", "d"} {
			f.zones[h.name] = append(f.zones[h.name], z)
			f.spot[zonalType{h.name, z}] = 0.5
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
	s, _ := settingsOf(&nc.Spec, families["AL2023"], cfg.sizes())
	c.resolved.Store(&resolved{class: nc, family: families["AL2023"], settings: s, images: []image{{id: "ami-1", arch: "amd64"}},
		subnets: []subnet{{"s-a", "a", "az1"}, {"s-b", "b", "az2"}, {"s-c", "c", "az3"}, {"s-d", "d", "az4"}}})

	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if types, unready := p.InstanceTypes(nc.Name); len(types) != 1300 {
				b.Fatal(len(types), unready)
			}
		}
	})
	b.Run("oneOfferExhausted", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			p.exhausted.now.Store(&exhaustion{until: map[scope]time.Time{{capacityType: "spot", instanceType: f.types[i%1300].name, zone: "a"}: {}}})
			p.version.Add(1)
			p.InstanceTypes(nc.Name)
		}
	})
	b.Run("oneSpotPriceMoved", func(b *testing.B) {
		b.ReportAllocs()
		p.InstanceTypes(nc.Name)
		for i := 0; b.Loop(); i++ {
			g := *p.catalogue.Region()
			g.spot = maps.Clone(g.spot)
			g.spot[zonalType{f.types[i%1300].name, "a"}] += 0.001
			p.catalogue = fixed{catalogue, &g}
			p.version.Add(1)
			p.InstanceTypes(nc.Name)
		}
	})
	b.Run("allAnew", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g := *f
			p.catalogue = fixed{catalogue, &g}
			p.version.Add(1)
			p.offers.of(nc.Name).now.Store(nil)
			p.InstanceTypes(nc.Name)
		}
	})
}
