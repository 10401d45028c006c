package catalog

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
)

// builtinRegion is the region of the built-in table. InRegion changes it.
const builtinRegion = "us-west-2"

var builtin = sync.OnceValue(func() *Catalog {
	var types []*Type
	for i := range families {
		types = append(types, families[i].types()...)
	}
	for i := range irregulars {
		types = append(types, irregulars[i].instanceType())
	}
	c, err := newCatalog(builtinRegion, types)
	if err != nil {
		panic(fmt.Sprintf("built-in %v", err)) // the table is a constant and tested
	}
	return c
})

// Builtin returns the built-in table: region us-west-2, zones a to d, prices of 2026. It is shared and must not be changed.
func Builtin() *Catalog { return builtin() }

// point is the baseline bandwidth of a size.
type point struct {
	vcpus   int
	netGbps float64
	ebsMbps int
}

// curve is the baseline bandwidth by size. For a size between two points, the smaller point applies.
type curve []point

var (
	a1    = curve{{1, 0.5, 300}, {2, 0.75, 525}, {4, 1.25, 800}, {8, 2.5, 1750}, {16, 5, 3500}}
	gen5  = curve{{2, 0.75, 650}, {4, 1.25, 1150}, {8, 2.5, 2300}, {16, 5, 4750}, {32, 10, 6800}, {36, 12, 9500}, {64, 20, 13600}, {72, 25, 19000}}
	gen5a = curve{{2, 0.75, 650}, {4, 1.25, 1085}, {8, 2.5, 1580}, {16, 5, 2880}, {32, 7.5, 4750}, {48, 10, 6780}, {64, 12, 9500}, {96, 20, 13750}}
	c5amd = curve{{2, 0.75, 200}, {4, 1.25, 400}, {8, 2.5, 800}, {16, 5, 1580}, {32, 10, 3170}, {48, 12, 4750}, {64, 20, 6300}, {96, 20, 9500}}
	gen6  = curve{{1, 0.39, 325}, {2, 0.781, 650}, {4, 1.562, 1250}, {8, 3.125, 2500}, {16, 6.25, 5000}, {32, 12.5, 10000}, {48, 18.75, 15000}, {64, 25, 20000}, {96, 37.5, 30000}, {128, 50, 40000}}
	gen6g = curve{{1, 0.5, 315}, {2, 0.75, 630}, {4, 1.25, 1188}, {8, 2.5, 2375}, {16, 5, 4750}, {32, 12, 9500}, {48, 20, 14250}, {64, 25, 19000}}
	gen7g = curve{{1, 0.52, 315}, {2, 0.937, 630}, {4, 1.876, 1250}, {8, 3.75, 2500}, {16, 7.5, 5000}, {32, 15, 10000}, {48, 22.5, 15000}, {64, 30, 20000}, {96, 40, 30000}, {192, 50, 40000}}
	flex  = curve{{2, 0.39, 312}, {4, 0.781, 625}, {8, 1.562, 1250}, {16, 3.125, 2500}, {32, 6.25, 5000}}
	i3    = curve{{2, 0.75, 425}, {4, 1.25, 850}, {8, 2.5, 1700}, {16, 5, 3500}, {32, 12, 7000}, {64, 25, 14000}}
	z1d   = curve{{2, 0.75, 800}, {4, 1.25, 1580}, {8, 2.5, 3170}, {12, 5, 4750}, {24, 12, 9500}, {48, 25, 19000}}
)

func (c curve) at(vcpus int) point {
	out := c[0]
	for _, p := range c {
		if p.vcpus <= vcpus {
			out = p
		}
	}
	return out
}

// interfaces returns the number of ENIs and of IPv4 addresses per ENI of a Nitro size.
func interfaces(vcpus int) (enis, ips int) {
	switch {
	case vcpus <= 1:
		return 2, 4
	case vcpus <= 2:
		return 3, 10
	case vcpus <= 12:
		return 4, 15
	case vcpus <= 48:
		return 8, 30
	default:
		return 15, 50
	}
}

func (f *family) types() []*Type {
	var out []*Type
	for _, size := range strings.Fields(f.sizes) {
		name, n, explicit := strings.Cut(size, "=")
		if !explicit {
			n = strconv.Itoa(vcpusOf(name))
		}
		vcpus, err := strconv.Atoi(n)
		if err != nil {
			panic(fmt.Sprintf("family %s: size %q: %v", f.name, size, err))
		}
		metal := strings.HasPrefix(name, "metal")
		price := f.usdPerVCPU * float64(vcpus)
		switch {
		case name == "metal-24xl":
			price *= 1.1 // half a host costs more than half the price
		case metal:
			price *= orOne(f.metalPremium)
		}
		p := f.bandwidth.at(vcpus)
		enis, ips := interfaces(vcpus)
		row := irregular{
			name: f.name + "." + name, arch: f.arch, maker: f.maker, ghz: f.ghz, vcpus: vcpus, gib: f.gibPerVCPU * float64(vcpus), usd: price,
			enis: enis, ips: ips, cards: 1, netGbps: p.netGbps * orOne(f.netX), ebsMbps: int(float64(p.ebsMbps) * orOne(f.ebsX)),
			nvmeGB: int64(f.nvmePerVCPU * float64(vcpus)), zones: f.zones,
		}
		if f.efaFrom > 0 && vcpus >= f.efaFrom {
			row.efa = 1
		}
		t := row.instanceType()
		t.CurrentGeneration = !f.old
		t.EncryptionInTransit = !f.clear
		t.EBSAttachmentsShared = !f.dedicatedEBS
		if f.xen {
			t.Hypervisor = "xen"
		}
		if f.dedicatedEBS {
			t.MaxEBSAttachments = dedicatedAttachments(vcpus, metal)
		}
		out = append(out, t)
	}
	return out
}

func (r *irregular) instanceType() *Type {
	metal := strings.Contains(r.name, ".metal")
	price := math.Round(r.usd*1e6) / 1e6
	ghz, ebs, branch := r.ghz, r.ebsMbps, branchENIs(r)
	t := &Type{
		Name: r.name, Arch: []string{map[string]string{"x86": "x86_64", "arm": "arm64"}[r.arch]}, VCPUs: r.vcpus, MemoryMiB: int64(r.gib * 1024),
		GPUs: []GPU{}, Accelerators: []Accelerator{}, LocalStoreGB: r.nvmeGB, LocalNVMeGB: r.nvmeGB,
		MaxENIs: r.enis, MaxENIsDefaultCard: r.enis / r.cards, IPv4PerENI: r.ips, NetworkCards: r.cards, BranchENIs: &branch,
		Hypervisor: "nitro", BareMetal: metal, Burstable: r.burst, CPUManufacturer: r.maker, SustainedClockGHz: &ghz, CurrentGeneration: true,
		NetworkGbps: r.netGbps, NetworkPeakGbps: max(r.netGbps, 10), EBSBaselineMbps: &ebs, MaxEBSAttachments: 27, EBSAttachmentsShared: true,
		EFASupported: r.efa > 0, MaxEFA: r.efa, EncryptionInTransit: !r.burst, UsageClasses: []string{"on-demand", "spot"}, VirtualizationTypes: []string{"hvm"},
		OnDemandUSDPerHour: &price, SpotUSDPerHourPools: []float64{},
	}
	if r.nvmeGB > 0 {
		t.MaxEBSAttachments--
	}
	if metal {
		t.Hypervisor, t.MaxEBSAttachments = "", 31
	}
	if r.gpu != nil {
		t.GPUs = []GPU{*r.gpu}
	}
	if r.neuron != nil {
		t.Accelerators = []Accelerator{*r.neuron}
	}
	for _, letter := range r.zones {
		t.Zones = append(t.Zones, builtinRegion+string(letter))
	}
	if r.onlyMain {
		t.UsageClasses = []string{"on-demand"}
		return t
	}
	// Spot prices are between 28 % and 45 % of on-demand, depending on the type.
	spot := math.Round(price*(0.28+0.17*float64(hash(r.name)%100)/100)*1e6) / 1e6
	t.SpotUSDPerHour = &spot
	return t
}

// branchENIs follows the table of common Nitro types; burstable types have none.
func branchENIs(r *irregular) int {
	switch {
	case r.burst:
		return 0
	case r.vcpus <= 1:
		return 4
	case r.vcpus <= 2:
		return 9
	case r.vcpus <= 4:
		return 18
	case r.vcpus <= 12:
		return 38
	case r.vcpus <= 48:
		return 54
	default:
		return 107
	}
}

// dedicatedAttachments returns the volume limit of types whose volumes don't share attachments with interfaces.
func dedicatedAttachments(vcpus int, metal bool) int {
	switch {
	case metal && vcpus < 192:
		return 39
	case metal:
		return 79
	case vcpus < 64:
		return 32
	case vcpus < 96:
		return 48
	case vcpus < 128:
		return 64
	case vcpus < 192:
		return 88
	default:
		return 128
	}
}

// vcpusOf returns the vCPUs that a size name stands for; 0 if it doesn't stand for a number.
func vcpusOf(size string) int {
	switch size {
	case "medium":
		return 1
	case "large":
		return 2
	case "xlarge":
		return 4
	}
	n, err := strconv.Atoi(strings.TrimSuffix(size, "xlarge"))
	if err != nil {
		return 0
	}
	return 4 * n
}

func orOne(f float64) float64 {
	if f == 0 {
		return 1
	}
	return f
}
