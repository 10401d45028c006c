package catalog

import (
	"hash/fnv"
	"math"
	"slices"
	"strings"
)

// Type is one instance type. The JSON names are the file schema of docs/catalog.md.
type Type struct {
	Name string `json:"name"`
	// Arch are the processor architectures: x86_64, arm64, i386, ...
	Arch      []string `json:"arch"`
	VCPUs     int      `json:"vcpus"`
	MemoryMiB int64    `json:"memoryMiB"`
	GPUs      []GPU    `json:"gpus"`
	// Accelerators that are not GPUs.
	Accelerators []Accelerator `json:"accelerators"`
	// LocalStoreGB is all instance store, LocalNVMeGB the NVMe part, in 10^9 bytes.
	LocalStoreGB int64 `json:"localStoreGB"`
	LocalNVMeGB  int64 `json:"localNvmeGB"`
	// LocalDisks is the number of disks that make up LocalStoreGB; 0 means one.
	LocalDisks int `json:"localDisks,omitempty"`
	// MaxENIs counts the ENIs of all network cards, MaxENIsDefaultCard those of the first card only.
	MaxENIs            int `json:"maxENIs"`
	MaxENIsDefaultCard int `json:"maxENIsDefaultCard"`
	IPv4PerENI         int `json:"ipv4PerENI"`
	NetworkCards       int `json:"networkCards"`
	// BranchENIs is the number of branch interfaces for pod security groups, which no EC2 API returns. Nil: unknown.
	BranchENIs *int `json:"branchENIs"`
	// Hypervisor is nitro, xen or empty (bare metal).
	Hypervisor      string `json:"hypervisor"`
	BareMetal       bool   `json:"bareMetal"`
	Burstable       bool   `json:"burstable"`
	CPUManufacturer string `json:"cpuManufacturer"`
	// SustainedClockGHz is nil if EC2 doesn't publish it.
	SustainedClockGHz *float64 `json:"sustainedClockGHz"`
	CurrentGeneration bool     `json:"currentGeneration"`
	// NetworkGbps is the baseline bandwidth, NetworkPeakGbps the burst.
	NetworkGbps     float64 `json:"networkGbps"`
	NetworkPeakGbps float64 `json:"networkPeakGbps"`
	EBSBaselineMbps *int    `json:"ebsBaselineMbps"`
	// EBSPeakMbps is nil for small sizes with the usual burst, which is 4,750 Mbit/s.
	EBSPeakMbps          *int `json:"ebsPeakMbps,omitempty"`
	MaxEBSAttachments    int  `json:"maxEBSAttachments"`
	EBSAttachmentsShared bool `json:"ebsAttachmentsShared"`
	EFASupported         bool `json:"efaSupported"`
	MaxEFA               int  `json:"maxEFA"`
	EncryptionInTransit  bool `json:"encryptionInTransit"`
	// UsageClasses are on-demand, spot, capacity-block.
	UsageClasses        []string `json:"usageClasses"`
	VirtualizationTypes []string `json:"virtualizationTypes"`
	// Zones that offer the type; empty: not offered in the region.
	Zones []string `json:"zones"`
	// OnDemandUSDPerHour is the Linux, shared tenancy price; nil: not known.
	OnDemandUSDPerHour *float64 `json:"onDemandUSDPerHour"`
	// SpotUSDPerHour is the mean spot price. SpotUSDPerHourPools are the zones' prices in ascending order, without stating which price
	// is which zone's. SpotUSDPerHourByZone states it, and takes precedence over both.
	SpotUSDPerHour       *float64           `json:"spotUSDPerHour"`
	SpotUSDPerHourPools  []float64          `json:"spotUSDPerHourPools"`
	SpotUSDPerHourByZone map[string]float64 `json:"spotUSDPerHourByZone,omitempty"`
}

// GPU is a kind of GPU in a type.
type GPU struct {
	Count        int    `json:"count"`
	Manufacturer string `json:"manufacturer"`
	Name         string `json:"name"`
	MemMiB       int64  `json:"memMiB"`
}

// Accelerator is a kind of accelerator in a type. Kind is neuron, inference, fpga or media.
type Accelerator struct {
	Kind           string `json:"kind"`
	Name           string `json:"name"`
	Count          int    `json:"count"`
	CoresPerDevice int    `json:"coresPerDevice"`
	MemMiB         int64  `json:"memMiB"`
	Manufacturer   string `json:"manufacturer"`
}

// Family returns the part of the name before the dot.
func (t *Type) Family() string {
	family, _, _ := strings.Cut(t.Name, ".")
	return family
}

// MaxPods returns how many pods the AWS VPC CNI has addresses for, without prefix delegation.
func (t *Type) MaxPods() int {
	return t.MaxENIsDefaultCard*(t.IPv4PerENI-1) + 2
}

// OfferedIn reports whether the zone offers the type.
func (t *Type) OfferedIn(zone string) bool {
	return slices.Contains(t.Zones, zone)
}

// PlacementStrategies returns the strategies of placement groups that support the type.
func (t *Type) PlacementStrategies() []string {
	if t.Burstable {
		return []string{"partition", "spread"}
	}
	return []string{"cluster", "partition", "spread"}
}

// Sells reports whether the type is offered as on-demand or spot at all.
func (t *Type) Sells(capacityType string) bool {
	return slices.Contains(t.UsageClasses, capacityType)
}

// OnDemand returns the on-demand price in $/h, and false if it is unknown.
func (t *Type) OnDemand() (float64, bool) {
	if t.OnDemandUSDPerHour == nil {
		return 0, false
	}
	return *t.OnDemandUSDPerHour, true
}

// Spot returns the spot price in $/h in a zone, and false if the zone doesn't offer the type as spot or no price is known. A hash of
// the type's name decides which of SpotUSDPerHourPools belongs to which zone.
func (t *Type) Spot(zone string) (float64, bool) {
	i := slices.Index(t.Zones, zone)
	if i < 0 || !t.Sells("spot") {
		return 0, false
	}
	if len(t.SpotUSDPerHourByZone) > 0 {
		price, ok := t.SpotUSDPerHourByZone[zone]
		return price, ok
	}
	if n := len(t.SpotUSDPerHourPools); n > 0 {
		return t.SpotUSDPerHourPools[(i+int(hash(t.Name)%uint64(n)))%n], true
	}
	base := 0.0
	switch {
	case t.SpotUSDPerHour != nil:
		base = *t.SpotUSDPerHour
	case t.OnDemandUSDPerHour != nil:
		base = 0.38 * *t.OnDemandUSDPerHour
	default:
		return 0, false
	}
	// Prices in the zones are between 85 % and 115 % of the mean, because real ones differ by some tens of percent.
	spread := 0.85 + 0.3*float64(hash(t.Name+zone)%1000)/1000
	return math.Round(base*spread*1e6) / 1e6, true
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}
