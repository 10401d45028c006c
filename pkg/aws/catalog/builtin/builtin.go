// Package builtin holds a table of instance types for those who have no AWS account at hand: the simulator's, with on-demand and spot prices
// of us-west-2 in 2026. Other regions and days have other prices; 'dovetail catalog' asks AWS for them.
//
// Only the user's tool imports it. The scheduler never buys by prices that are not AWS's own.
package builtin

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the table
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
)

// table is a catalogue file, which TestTableIsTheSimulators writes with -update.
//
//go:embed table.json.gz
var table []byte

// Catalog returns the table under the names of a region and its zones. An empty region is the table's own, and so are zones of the table. If others are given,
// they replace the table's zones in turn; otherwise each zone keeps its letter and gets the region's name.
func Catalog(region string, zones []string) (*catalog.File, error) {
	r, err := gzip.NewReader(bytes.NewReader(table))
	if err != nil {
		return nil, fmt.Errorf("the built-in catalogue: %w", err)
	}
	f, err := catalog.Read(r)
	if err != nil {
		return nil, fmt.Errorf("the built-in catalogue: %w", err)
	}
	from := f.Meta.Region
	f.Meta.Source = "built into this program: prices of " + from + " in 2026"
	var named []string
	for i := range f.Types {
		named = append(named, f.Types[i].Zones...)
	}
	slices.Sort(named)
	named = slices.Compact(named)
	another := func(z string) bool { return !slices.Contains(named, z) }
	if region == "" || region == from && !slices.ContainsFunc(zones, another) {
		return f, nil
	}
	f.Meta.Region = region
	if len(zones) == 0 {
		for _, z := range named {
			zones = append(zones, region+strings.TrimPrefix(z, from))
		}
	}
	for i := range f.Types {
		move(&f.Types[i], named, zones)
	}
	return f, nil
}

// move replaces the zones of a type. The zones of to take the types and spot prices of the zones of from in turn, beginning again at the end of from.
func move(t *catalog.Type, from, to []string) {
	var zones []string
	prices := map[string]float64{}
	for i, z := range to {
		as := from[i%len(from)]
		if slices.Contains(t.Zones, as) {
			zones = append(zones, z)
		}
		if p, ok := t.SpotByZone[as]; ok {
			prices[z] = p
		}
	}
	if t.Zones = zones; t.SpotByZone != nil {
		t.SpotByZone = prices
	}
}
