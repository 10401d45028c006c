package builtin

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

var update = flag.Bool("update", false, "rewrite table.json.gz from the simulator's table")

func TestTableIsTheSimulators(t *testing.T) {
	var want bytes.Buffer
	if err := catalog.Builtin().Write(&want); err != nil {
		t.Fatal(err)
	}
	if *update {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(want.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("table.json.gz", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	r, err := gzip.NewReader(bytes.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("table.json.gz is not the simulator's table: go test ./pkg/aws/catalog/builtin -update")
	}
}

// In a region with more zones than the table every zone has types and prices, and no other zone has any.
func TestZonesOfARegion(t *testing.T) {
	zones := []string{"us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1e", "us-east-1f"}
	f, err := Catalog("us-east-1", zones)
	if err != nil {
		t.Fatal(err)
	}
	if f.Meta.Region != "us-east-1" {
		t.Errorf("the region is %s", f.Meta.Region)
	}
	region := f.Region()
	offered := map[string]int{}
	for name, in := range region.Zones {
		for _, z := range in {
			offered[z]++
			if h := region.Find(name); h != nil && h.Spot {
				if p, ok := region.Price(h, z, true); !ok || p <= 0 {
					t.Errorf("%s in %s has no spot price", name, z)
				}
			}
		}
	}
	for _, z := range zones {
		if offered[z] < 100 {
			t.Errorf("zone %s has %d types", z, offered[z])
		}
		delete(offered, z)
	}
	if len(offered) > 0 {
		t.Errorf("types are in other zones, too: %v", offered)
	}
}

func TestRegionWithoutZones(t *testing.T) {
	for region, want := range map[string]string{"": "us-west-2a", "eu-west-1": "eu-west-1a"} {
		f, err := Catalog(region, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(f.Types[0].Zones, want) {
			t.Errorf("region %q: %s is in %v, want %s, too", region, f.Types[0].Name, f.Types[0].Zones, want)
		}
	}
}

// A cluster with nodes in one zone of the table's own region may have others in each of its zones, at each zone's own price.
func TestZonesOfTheOwnRegion(t *testing.T) {
	whole, err := Catalog("", nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Catalog("us-west-2", []string{"us-west-2c"})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(whole.Types, f.Types) {
		t.Error("the table has changed")
	}
}
