package catalog

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Hardware is the part of an instance type's description that we keep. It is small, so that holding all types of a region is cheap.
type Hardware struct {
	Name       string
	Arch       string // in Kubernetes' notation
	Hypervisor string
	Metal      bool
	OnDemand   bool
	Spot       bool

	VCPU      int64
	MemoryMiB int64
	// Parts of the name: m5d.2xlarge is category m, generation 5, family m5d, size 2xlarge.
	Category, Generation, Family, Size string
	CPUManufacturer                    string
	ClockMHz                           int64

	NVMeGB    int64 // size of the instance store if its disks are NVMe
	StoreGB   int64 // size of the instance store, of any kind
	StoreDisk int64 // number of disks of the instance store

	Cards        []NetworkCard
	defaultCard  int
	IPv4PerENI   int64
	Bandwidth    int64 // baseline Mbit/s over all cards; 0: unknown
	EFAs         int64
	ENA          bool
	Encryption   bool // in transit
	EBSBandwidth int64

	EBSDedicated   bool
	EBSAttachments int64 // 0: unknown

	GPUs         []Device
	Accelerators []Device
	NeuronCores  int64

	NestedVirtualization bool
	// Strategies of the placement groups that accept the type; nil: unknown.
	Strategies []string
}

// strategySets stores each set of strategies only once: there are few different sets, but a thousand types.
var strategySets = &sets{known: map[string][]string{}}

type sets struct {
	mu    sync.Mutex
	known map[string][]string
}

func (s *sets) of(strategies []ec2types.PlacementGroupStrategy) []string {
	out := make([]string, 0, len(strategies))
	for _, v := range strategies {
		out = append(out, string(v))
	}
	key := strings.Join(out, ",")
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.known[key]; ok {
		return have
	}
	s.known[key] = out
	return out
}

type NetworkCard struct{ Index, Interfaces int64 }

type Device struct {
	Name, Manufacturer string
	Count, MemoryMiB   int64
	Neuron             bool
}

func (h *Hardware) Nitro() bool { return h.Hypervisor != string(ec2types.InstanceTypeHypervisorXen) }

// typeName splits u-12tb1.112xlarge, m7i-flex.large, c7gn.metal into letters, size class, generation.
var typeName = regexp.MustCompile(`^([a-z]+)(-[0-9]+tb)?([0-9]+)`)

var kubeArch = map[ec2types.ArchitectureType]string{ec2types.ArchitectureTypeX8664: "amd64", ec2types.ArchitectureTypeArm64: "arm64"}

// HardwareOf extracts the hardware from a description. ok is false for types that can't be nodes (no known architecture, no size).
func HardwareOf(i *ec2types.InstanceTypeInfo) (h *Hardware, ok bool) {
	if i.ProcessorInfo == nil || i.VCpuInfo == nil || i.MemoryInfo == nil {
		return nil, false
	}
	h = &Hardware{
		Name: string(i.InstanceType), Hypervisor: string(i.Hypervisor), Metal: awssdk.ToBool(i.BareMetal),
		VCPU: int64(awssdk.ToInt32(i.VCpuInfo.DefaultVCpus)), MemoryMiB: awssdk.ToInt64(i.MemoryInfo.SizeInMiB),
		OnDemand:        slices.Contains(i.SupportedUsageClasses, ec2types.UsageClassTypeOnDemand),
		Spot:            slices.Contains(i.SupportedUsageClasses, ec2types.UsageClassTypeSpot),
		CPUManufacturer: LabelValue(awssdk.ToString(i.ProcessorInfo.Manufacturer)),
		ClockMHz:        int64(math.Round(awssdk.ToFloat64(i.ProcessorInfo.SustainedClockSpeedInGhz) * 1000)),
		NestedVirtualization: slices.Contains(i.ProcessorInfo.SupportedFeatures,
			ec2types.SupportedAdditionalProcessorFeatureNestedVirtualization),
	}
	for _, a := range i.ProcessorInfo.SupportedArchitectures {
		if k := kubeArch[a]; k != "" && h.Arch == "" {
			h.Arch = k
		}
	}
	if h.Arch == "" || h.VCPU <= 0 || h.MemoryMiB <= 0 {
		return nil, false
	}
	h.Family, h.Size, _ = strings.Cut(h.Name, ".")
	if m := typeName.FindStringSubmatch(h.Name); m != nil {
		h.Category, h.Generation = m[1], m[3]
	}
	h.network(i.NetworkInfo)
	h.storage(i)
	h.devices(i)
	if i.PlacementGroupInfo != nil {
		h.Strategies = strategySets.of(i.PlacementGroupInfo.SupportedStrategies)
	}
	return h, true
}

func (h *Hardware) network(n *ec2types.NetworkInfo) {
	if n == nil {
		return
	}
	h.IPv4PerENI = int64(awssdk.ToInt32(n.Ipv4AddressesPerInterface))
	h.Encryption = awssdk.ToBool(n.EncryptionInTransitSupported)
	h.ENA = n.EnaSupport != ec2types.EnaSupportUnsupported
	if n.EfaInfo != nil {
		h.EFAs = int64(awssdk.ToInt32(n.EfaInfo.MaximumEfaInterfaces))
	}
	var gbps float64
	for i, c := range n.NetworkCards {
		h.Cards = append(h.Cards, NetworkCard{Index: int64(awssdk.ToInt32(c.NetworkCardIndex)), Interfaces: int64(awssdk.ToInt32(c.MaximumNetworkInterfaces))})
		if awssdk.ToInt32(c.NetworkCardIndex) == awssdk.ToInt32(n.DefaultNetworkCardIndex) {
			h.defaultCard = i
		}
		gbps += awssdk.ToFloat64(c.BaselineBandwidthInGbps)
	}
	if len(h.Cards) == 0 {
		h.Cards = []NetworkCard{{Interfaces: int64(awssdk.ToInt32(n.MaximumNetworkInterfaces))}}
	}
	h.Bandwidth = int64(math.Round(gbps * 1000))
	if h.Bandwidth == 0 {
		// "25 Gigabit" is guaranteed, "Up to 25 Gigabit" is not.
		if v, unit, ok := strings.Cut(awssdk.ToString(n.NetworkPerformance), " "); ok && unit == "Gigabit" {
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				h.Bandwidth = int64(math.Round(f * 1000))
			}
		}
	}
}

func (h *Hardware) storage(i *ec2types.InstanceTypeInfo) {
	if s := i.InstanceStorageInfo; s != nil {
		h.StoreGB = awssdk.ToInt64(s.TotalSizeInGB)
		if s.NvmeSupport != ec2types.EphemeralNvmeSupportUnsupported {
			h.NVMeGB = h.StoreGB
		}
		for _, d := range s.Disks {
			h.StoreDisk += int64(awssdk.ToInt32(d.Count))
		}
	}
	if e := i.EbsInfo; e != nil {
		h.EBSDedicated = e.AttachmentLimitType == ec2types.AttachmentLimitTypeDedicated
		h.EBSAttachments = int64(awssdk.ToInt32(e.MaximumEbsAttachments))
		if e.EbsOptimizedSupport == ec2types.EbsOptimizedSupportDefault && e.EbsOptimizedInfo != nil {
			h.EBSBandwidth = int64(awssdk.ToInt32(e.EbsOptimizedInfo.MaximumBandwidthInMbps))
		}
	}
}

func (h *Hardware) devices(i *ec2types.InstanceTypeInfo) {
	if i.GpuInfo != nil {
		for _, g := range i.GpuInfo.Gpus {
			d := Device{Name: awssdk.ToString(g.Name), Manufacturer: awssdk.ToString(g.Manufacturer), Count: int64(awssdk.ToInt32(g.Count))}
			if g.MemoryInfo != nil {
				d.MemoryMiB = int64(awssdk.ToInt32(g.MemoryInfo.SizeInMiB))
			}
			h.GPUs = append(h.GPUs, d)
		}
	}
	// Neuron devices are described twice; only the newer description contains their cores.
	if i.NeuronInfo != nil {
		for _, n := range i.NeuronInfo.NeuronDevices {
			d := Device{Name: awssdk.ToString(n.Name), Manufacturer: "aws", Count: int64(awssdk.ToInt32(n.Count)), Neuron: true}
			if n.MemoryInfo != nil {
				d.MemoryMiB = int64(awssdk.ToInt32(n.MemoryInfo.SizeInMiB))
			}
			if n.CoreInfo != nil {
				h.NeuronCores += d.Count * int64(awssdk.ToInt32(n.CoreInfo.Count))
			}
			h.Accelerators = append(h.Accelerators, d)
		}
		return
	}
	if i.InferenceAcceleratorInfo != nil {
		for _, a := range i.InferenceAcceleratorInfo.Accelerators {
			h.Accelerators = append(h.Accelerators, Device{Name: awssdk.ToString(a.Name), Manufacturer: awssdk.ToString(a.Manufacturer), Count: int64(awssdk.ToInt32(a.Count))})
		}
	}
}

// PrimaryInterfaces returns how many network interfaces the card with the primary one has.
func (h *Hardware) PrimaryInterfaces() int64 {
	if len(h.Cards) == 0 {
		return 0
	}
	return h.Cards[h.defaultCard].Interfaces
}

// LabelValue returns a name as Karpenter writes it into a label: lower case, with dashes for blanks.
func LabelValue(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "-")) }

func byName(a, b *Hardware) int { return cmp.Compare(a.Name, b.Name) }
