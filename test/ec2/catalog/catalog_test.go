package catalog

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBuiltinSaysWhatEC2Says(t *testing.T) {
	type details struct {
		VCPUs       int
		MemoryMiB   int64
		OnDemand    float64
		MaxENIs     int
		IPv4PerENI  int
		MaxPods     int
		NetworkGbps float64
		LocalNVMeGB int64
		Arch        string
		GPUs        int
		Zones       string
	}
	for name, want := range map[string]details{
		"m5.large":        {2, 8192, 0.096, 3, 10, 29, 0.75, 0, "x86_64", 0, "abcd"},
		"c5.9xlarge":      {36, 73728, 1.53, 8, 30, 234, 12, 0, "x86_64", 0, "abcd"},
		"c6g.medium":      {1, 2048, 0.034, 2, 4, 8, 0.5, 0, "arm64", 0, "abcd"},
		"m6g.metal":       {64, 262144, 2.61184, 15, 50, 737, 25, 0, "arm64", 0, "abcd"},
		"m7i.metal-24xl":  {96, 393216, 5.32224, 15, 50, 737, 37.5, 0, "x86_64", 0, "abcd"},
		"r7g.16xlarge":    {64, 524288, 3.4272, 15, 50, 737, 30, 0, "arm64", 0, "abcd"},
		"t3.medium":       {2, 4096, 0.0416, 3, 6, 17, 0.256, 0, "x86_64", 0, "abcd"},
		"i3.large":        {2, 15616, 0.156, 3, 10, 29, 0.75, 475, "x86_64", 0, "abcd"},
		"g5.48xlarge":     {192, 786432, 16.288, 7, 50, 345, 100, 7600, "x86_64", 8, "abc"},
		"p4d.24xlarge":    {96, 1179648, 21.957642, 60, 50, 737, 400, 8000, "x86_64", 8, "abcd"},
		"x2iedn.32xlarge": {128, 4194304, 26.675968, 15, 50, 737, 100, 3800, "x86_64", 0, "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			ty := Builtin().Type(name)
			if ty == nil {
				t.Fatal("not in the table")
			}
			price, _ := ty.OnDemand()
			got := details{ty.VCPUs, ty.MemoryMiB, price, ty.MaxENIs, ty.IPv4PerENI, ty.MaxPods(), ty.NetworkGbps, ty.LocalNVMeGB, ty.Arch[0], 0, ""}
			for _, g := range ty.GPUs {
				got.GPUs += g.Count
			}
			for _, z := range ty.Zones {
				got.Zones += strings.TrimPrefix(z, "us-west-2")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if n := len(Builtin().Types); n < 400 {
		t.Errorf("only %d types", n)
	}
}

func TestEveryBuiltinTypeCanBePriced(t *testing.T) {
	for _, ty := range Builtin().Types {
		onDemand, ok := ty.OnDemand()
		if !ok || onDemand <= 0 {
			t.Errorf("%s: no on-demand price", ty.Name)
		}
		for _, z := range ty.Zones {
			spot, ok := ty.Spot(z)
			if ok != ty.Sells("spot") {
				t.Errorf("%s in %s: spot price %v, sold as spot %v", ty.Name, z, ok, ty.Sells("spot"))
			}
			if ok && (spot <= 0 || spot >= onDemand) {
				t.Errorf("%s in %s: spot %f, on-demand %f", ty.Name, z, spot, onDemand)
			}
		}
	}
}

func TestLoadReadsWhatWriteWrote(t *testing.T) {
	var buf bytes.Buffer
	if err := Builtin().Write(&buf); err != nil {
		t.Fatal(err)
	}
	got, err := Load(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Builtin().Types, got.Types); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLoadRefuses(t *testing.T) {
	const good = `{"name": "m5.large", "arch": ["x86_64"], "vcpus": 2, "memoryMiB": 8192, "maxENIs": 3, "ipv4PerENI": 10}`
	for name, tc := range map[string]struct{ in, want string }{
		"what is not JSON":       {`<catalog/>`, "decoding catalogue"},
		"a file without region":  {`{"instanceTypes": [` + good + `]}`, "meta.region is missing"},
		"an empty table":         {`{"meta": {"region": "us-west-2"}}`, "instanceTypes is empty"},
		"a type listed twice":    {`{"meta": {"region": "us-west-2"}, "instanceTypes": [` + good + `,` + good + `]}`, "m5.large is listed twice"},
		"a type without memory":  {`{"meta": {"region": "us-west-2"}, "instanceTypes": [` + strings.Replace(good, "8192", "0", 1) + `]}`, "m5.large: memoryMiB is missing"},
		"a type without a size":  {`{"meta": {"region": "us-west-2"}, "instanceTypes": [` + strings.Replace(good, "m5.large", "m5", 1) + `]}`, `"m5" is not family.size`},
		"a type without network": {`{"meta": {"region": "us-west-2"}, "instanceTypes": [` + strings.Replace(good, `"maxENIs": 3`, `"maxENIs": 0`, 1) + `]}`, "m5.large: maxENIs"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(strings.NewReader(tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one about %q", err, tc.want)
			}
		})
	}
}

func TestSpotPoolsAreAllGivenToZones(t *testing.T) {
	ty := &Type{Name: "m5.large", UsageClasses: []string{"on-demand", "spot"}, Zones: []string{"us-west-2a", "us-west-2b", "us-west-2c"}, SpotUSDPerHourPools: []float64{0.03, 0.04, 0.05}}
	sum := 0.0
	for _, z := range ty.Zones {
		p, ok := ty.Spot(z)
		if !ok {
			t.Fatalf("no price in %s", z)
		}
		sum += p
	}
	if math.Abs(sum-0.12) > 1e-9 {
		t.Errorf("prices of the zones add up to %f, want each pool once: 0.12", sum)
	}
	if _, ok := ty.Spot("us-west-2d"); ok {
		t.Error("a zone that doesn't offer the type has a spot price")
	}
}

func TestAnotherRegionHasItsOwnZones(t *testing.T) {
	moved := Builtin().InRegion("eu-central-1")
	if got, want := moved.Type("m5.large").Zones[0], "eu-central-1a"; got != want {
		t.Errorf("zone %s, want %s", got, want)
	}
	if got, want := Builtin().Type("m5.large").Zones[0], "us-west-2a"; got != want {
		t.Errorf("the table itself was changed: %s, want %s", got, want)
	}
}

func TestTheDocumentedExampleLoads(t *testing.T) {
	text, err := os.ReadFile("../../../docs/catalog.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```json\n")
	example, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/catalog.md has no example")
	}
	c, err := Load(strings.NewReader(example))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Type("m7g.large").MaxPods(); got != 29 {
		t.Errorf("m7g.large holds %d pods, want 29", got)
	}
}

// A file read from a region states each zone's spot price. The prices follow the zones when the catalogue is moved to another region.
func TestSpotPricesByZone(t *testing.T) {
	c, err := Load(strings.NewReader(`{"meta":{"region":"eu-west-1"},"instanceTypes":[{"name":"m1.tiny","arch":["x86_64"],"vcpus":2,"memoryMiB":4096,
		"maxENIs":3,"ipv4PerENI":10,"usageClasses":["spot"],"zones":["eu-west-1a","eu-west-1b"],
		"spotUSDPerHourByZone":{"eu-west-1b":0.03},"spotUSDPerHourPools":[0.02,0.04],"spotUSDPerHour":0.5}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for zone, want := range map[string]float64{"eu-west-1a": 0, "eu-west-1b": 0.03} {
		if got, ok := c.Type("m1.tiny").Spot(zone); got != want || ok != (want > 0) {
			t.Errorf("spot price in %s: %v, %v, want %v", zone, got, ok, want)
		}
		moved := "us-east-1" + strings.TrimPrefix(zone, "eu-west-1")
		if got, _ := c.InRegion("us-east-1").Type("m1.tiny").Spot(moved); got != want {
			t.Errorf("spot price in %s: %v, want %v", moved, got, want)
		}
	}
}

func TestFamilies(t *testing.T) {
	c := Builtin().Families("m5", "nobody")
	if len(c.Types) == 0 || c.Type("m5.large") == nil || c.Type("c5.large") != nil {
		t.Errorf("%d types", len(c.Types))
	}
	for _, typ := range c.Types {
		if typ.Family() != "m5" {
			t.Errorf("%s is no m5", typ.Name)
		}
	}
}
