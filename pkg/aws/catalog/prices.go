package catalog

import (
	"context"
	"maps"
	"strings"
	"time"
)

// Prices are in $/h. A price that is the same in all zones has no zone. nil means that prices are not known, an empty map that there are none.
type Prices map[Pool]float64

// Pool is an instance type in a zone.
type Pool struct{ InstanceType, Zone string }

// The price sources, as Status names them.
const (
	OnDemand = "on-demand prices"
	Spot     = "spot prices"
)

// PriceSettings are the settings of the price sources.
type PriceSettings struct {
	// The times between two reads.
	OnDemandEvery, SpotEvery time.Duration
}

// priceSource is where prices of on-demand or spot instances are read.
type priceSource struct {
	part string // the source's name in the text of Cache.Status and, with dashes for spaces, in metrics
	spot bool
	// complete: the source has a price for everything that can be launched. Until such a source has been read, missing prices are estimated. A
	// source that isn't complete has prices for some types only; for all others the prices of the other sources count.
	complete bool
	every    func(Config) time.Duration
	// read returns nil if the source can't be asked in this region, and an empty map if it isn't configured.
	read func(ctx context.Context, c calls, cfg Config, now time.Time) (Prices, error)
}

// priceSources are all price sources. If several know a price, that of the first in this order counts.
var priceSources = []priceSource{onDemand, spot}

// setPrices replaces the prices of a source in a copy of the map: other Regions share the old one.
func (f *Region) setPrices(source string, p Prices) {
	f.Prices = maps.Clone(f.Prices)
	if f.Prices == nil {
		f.Prices = map[string]Prices{}
	}
	f.Prices[source] = p
}

// AllRead returns the prices of a region, by price source, as if all sources had been read. onDemand and spot are the prices that count; a nil
// map means that these are not known.
func AllRead(onDemand, spot Prices) map[string]Prices {
	out := map[string]Prices{}
	for i := range priceSources {
		out[priceSources[i].part] = Prices{}
	}
	out[OnDemand], out[Spot] = onDemand, spot
	return out
}

// known reports whether all complete sources for spot or for on-demand instances have been read, so that what has no price can't be launched.
func (f *Region) known(spot bool) bool {
	for i := range priceSources {
		if s := &priceSources[i]; s.spot == spot && s.complete && f.Prices[s.part] == nil {
			return false
		}
	}
	return true
}

// Price returns what an offering costs in $/h. ok is false if prices are known and this type has none there: it can't be launched.
// Until all prices have been read, those that are missing are estimated.
func (f *Region) Price(h *Hardware, zone string, spot bool) (p float64, ok bool) {
	if p, ok = f.listed(h.Name, zone, spot); ok || f.known(spot) {
		return p, ok
	}
	if !spot {
		return Estimate(h), true
	}
	p, ok = f.Price(h, zone, false)
	return p * spotShare, ok
}

// listed returns the price of an instance type in a zone that the first source has which knows one; false: none does.
func (f *Region) listed(name, zone string, spot bool) (float64, bool) {
	for i := range priceSources {
		s := &priceSources[i]
		if s.spot != spot {
			continue
		}
		prices := f.Prices[s.part]
		if p, ok := prices[Pool{name, zone}]; ok {
			return p, true
		}
		if p, ok := prices[Pool{InstanceType: name}]; ok {
			return p, true
		}
	}
	return 0, false
}

// spotShare is the assumed price of a spot instance as a share of the on-demand price, until spot prices are known.
const spotShare = 0.5

// Estimate is a rule of thumb for the on-demand price: linear in cores, memory, local disks and the memory of accelerators. It follows
// the price lists of us-east-1 closely enough to order instance types.
func Estimate(h *Hardware) float64 {
	const (
		perCore, perGiB = 0.034, 0.0035
		perNVMeGB       = 0.0002
		perGPUGiB       = 0.035
		perAccelerator  = 0.8
		arm, amd, flex  = 0.8, 0.9, 0.95
		burstPerGiB     = 0.0104 // burstable types are priced by memory, including their cores
	)
	p := perCore*float64(h.VCPU) + perGiB*float64(h.MemoryMiB)/1024
	if h.Category == "t" {
		p = burstPerGiB * float64(h.MemoryMiB) / 1024
	}
	if h.Arch == "arm64" {
		p *= arm
	} else if h.CPUManufacturer == "amd" {
		p *= amd
	}
	if strings.Contains(h.Family, "-flex") {
		p *= flex
	}
	p += perNVMeGB * float64(h.NVMeGB)
	for _, g := range h.GPUs {
		p += perGPUGiB * float64(g.Count) * float64(max(g.MemoryMiB, 16<<10)) / 1024
	}
	for _, a := range h.Accelerators {
		p += perAccelerator * float64(a.Count)
	}
	return p
}
