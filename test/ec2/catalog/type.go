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
	// LocalDisks is the number of disks of LocalStoreGB; 0: one.
	LocalDisks int `json:"localDisks,omitempty"`
	// MaxENIs counts all network cards, MaxENIsDefaultCard the first only.
	MaxENIs            int `json:"maxENIs"`
	MaxENIsDefaultCard int `json:"maxENIsDefaultCard"`
	IPv4PerENI         int `json:"ipv4PerENI"`
	NetworkCards       int `json:"networkCards"`
	// BranchENIs is the number of branch interfaces for pod security groups; no EC2 API tells it. Nil: unknown.
	BranchENIs *int `json:"branchENIs"`
	// Hypervisor is nitro, xen or empty (bare metal).
	Hypervisor      string `json:"hypervisor"`
	BareMetal       bool   `json:"bareMetal"`
	Burstable       bool   `json:"burstable"`
	CPUManufacturer string `json:"cpuManufacturer"`
	// SustainedClockGHz is nil when EC2 doesn't tell it.
	SustainedClockGHz *float64 `json:"sustainedClockGHz"`
	CurrentGeneration bool     `json:"currentGeneration"`
	// NetworkGbps is the baseline bandwidth, NetworkPeakGbps the burst.
	NetworkGbps     float64 `json:"networkGbps"`
	NetworkPeakGbps float64 `json:"networkPeakGbps"`
	EBSBaselineMbps *int    `json:"ebsBaselineMbps"`
	// EBSPeakMbps is nil where small sizes burst as usual: to 4,750 Mbit/s.
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
	// SpotUSDPerHour is the mean spot price, SpotUSDPerHourPools the prices of the zones in ascending order, not saying
	// which zone is which; SpotUSDPerHourByZone says it, and goes before both.
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

// Family is the part of the name before the dot.
func (t *Type) Family() string {
	family, _, _ := strings.Cut(t.Name, ".")
	return family
}

// MaxPods is how many pods the AWS VPC CNI gives addresses to, without prefix delegation.
func (t *Type) MaxPods() int {
	return t.MaxENIsDefaultCard*(t.IPv4PerENI-1) + 2
}

// OfferedIn says whether the zone offers the type.
func (t *Type) OfferedIn(zone string) bool {
	return slices.Contains(t.Zones, zone)
}

// PlacementStrategies are the kinds of placement group that take the type.
func (t *Type) PlacementStrategies() []string {
	if t.Burstable {
		return []string{"partition", "spread"}
	}
	return []string{"cluster", "partition", "spread"}
}

// Sells says whether the type can be had as on-demand or spot at all.
func (t *Type) Sells(capacityType string) bool {
	return slices.Contains(t.UsageClasses, capacityType)
}

// OnDemand is the on-demand price in $/h, false when not known.
func (t *Type) OnDemand() (float64, bool) {
	if t.OnDemandUSDPerHour == nil {
		return 0, false
	}
	return *t.OnDemandUSDPerHour, true
}

// Spot is the spot price in $/h of a zone, false when the zone doesn't sell the type as spot or no price is known.
// Which of SpotUSDPerHourPools belongs to which zone is decided by a hash of the type's name.
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
	// Pools of one type differ by some tens of percent: 85 % to 115 % of the mean.
	spread := 0.85 + 0.3*float64(hash(t.Name+zone)%1000)/1000
	return math.Round(base*spread*1e6) / 1e6, true
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}
