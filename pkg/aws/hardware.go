package aws

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

// hardware is the part of an instance type's description that we keep. It is small, so that holding all types of a region is cheap.
type hardware struct {
	name       string
	arch       string // in Kubernetes' notation
	hypervisor string
	metal      bool
	onDemand   bool
	spot       bool

	vcpu      int64
	memoryMiB int64
	// Parts of the name: m5d.2xlarge is category m, generation 5, family m5d, size 2xlarge.
	category, generation, family, size string
	cpuManufacturer                    string
	clockMHz                           int64

	nvmeGB    int64 // instance store reachable as NVMe
	storeGB   int64 // any instance store
	storeDisk int64 // its number of disks

	cards        []networkCard
	defaultCard  int
	ipv4PerENI   int64
	bandwidth    int64 // baseline Mbit/s over all cards; 0: unknown
	efas         int64
	ena          bool
	encryption   bool // in transit
	ebsBandwidth int64

	ebsDedicated   bool
	ebsAttachments int64 // 0: unknown

	gpus         []device
	accelerators []device
	neuronCores  int64

	nestedVirtualization bool
	// strategies of the placement groups that accept the type; nil: unknown.
	strategies []string
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

type networkCard struct{ index, interfaces int64 }

type device struct {
	name, manufacturer string
	count, memoryMiB   int64
	neuron             bool
}

func (h *hardware) nitro() bool { return h.hypervisor != string(ec2types.InstanceTypeHypervisorXen) }

// typeName splits u-12tb1.112xlarge, m7i-flex.large, c7gn.metal into letters, size class, generation.
var typeName = regexp.MustCompile(`^([a-z]+)(-[0-9]+tb)?([0-9]+)`)

var kubeArch = map[ec2types.ArchitectureType]string{ec2types.ArchitectureTypeX8664: "amd64", ec2types.ArchitectureTypeArm64: "arm64"}

// hardwareOf extracts the hardware from a description. ok is false for types that can't be nodes (no known architecture, no size).
func hardwareOf(i *ec2types.InstanceTypeInfo) (h *hardware, ok bool) {
	if i.ProcessorInfo == nil || i.VCpuInfo == nil || i.MemoryInfo == nil {
		return nil, false
	}
	h = &hardware{
		name: string(i.InstanceType), hypervisor: string(i.Hypervisor), metal: awssdk.ToBool(i.BareMetal),
		vcpu: int64(awssdk.ToInt32(i.VCpuInfo.DefaultVCpus)), memoryMiB: awssdk.ToInt64(i.MemoryInfo.SizeInMiB),
		onDemand:        slices.Contains(i.SupportedUsageClasses, ec2types.UsageClassTypeOnDemand),
		spot:            slices.Contains(i.SupportedUsageClasses, ec2types.UsageClassTypeSpot),
		cpuManufacturer: labelValue(awssdk.ToString(i.ProcessorInfo.Manufacturer)),
		clockMHz:        int64(math.Round(awssdk.ToFloat64(i.ProcessorInfo.SustainedClockSpeedInGhz) * 1000)),
		nestedVirtualization: slices.Contains(i.ProcessorInfo.SupportedFeatures,
			ec2types.SupportedAdditionalProcessorFeatureNestedVirtualization),
	}
	for _, a := range i.ProcessorInfo.SupportedArchitectures {
		if k := kubeArch[a]; k != "" && h.arch == "" {
			h.arch = k
		}
	}
	if h.arch == "" || h.vcpu <= 0 || h.memoryMiB <= 0 {
		return nil, false
	}
	h.family, h.size, _ = strings.Cut(h.name, ".")
	if m := typeName.FindStringSubmatch(h.name); m != nil {
		h.category, h.generation = m[1], m[3]
	}
	h.network(i.NetworkInfo)
	h.storage(i)
	h.devices(i)
	if i.PlacementGroupInfo != nil {
		h.strategies = strategySets.of(i.PlacementGroupInfo.SupportedStrategies)
	}
	return h, true
}

func (h *hardware) network(n *ec2types.NetworkInfo) {
	if n == nil {
		return
	}
	h.ipv4PerENI = int64(awssdk.ToInt32(n.Ipv4AddressesPerInterface))
	h.encryption = awssdk.ToBool(n.EncryptionInTransitSupported)
	h.ena = n.EnaSupport != ec2types.EnaSupportUnsupported
	if n.EfaInfo != nil {
		h.efas = int64(awssdk.ToInt32(n.EfaInfo.MaximumEfaInterfaces))
	}
	var gbps float64
	for i, c := range n.NetworkCards {
		h.cards = append(h.cards, networkCard{index: int64(awssdk.ToInt32(c.NetworkCardIndex)), interfaces: int64(awssdk.ToInt32(c.MaximumNetworkInterfaces))})
		if awssdk.ToInt32(c.NetworkCardIndex) == awssdk.ToInt32(n.DefaultNetworkCardIndex) {
			h.defaultCard = i
		}
		gbps += awssdk.ToFloat64(c.BaselineBandwidthInGbps)
	}
	if len(h.cards) == 0 {
		h.cards = []networkCard{{interfaces: int64(awssdk.ToInt32(n.MaximumNetworkInterfaces))}}
	}
	h.bandwidth = int64(math.Round(gbps * 1000))
	if h.bandwidth == 0 {
		// "25 Gigabit" is guaranteed, "Up to 25 Gigabit" is not.
		if v, unit, ok := strings.Cut(awssdk.ToString(n.NetworkPerformance), " "); ok && unit == "Gigabit" {
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				h.bandwidth = int64(math.Round(f * 1000))
			}
		}
	}
}

func (h *hardware) storage(i *ec2types.InstanceTypeInfo) {
	if s := i.InstanceStorageInfo; s != nil {
		h.storeGB = awssdk.ToInt64(s.TotalSizeInGB)
		if s.NvmeSupport != ec2types.EphemeralNvmeSupportUnsupported {
			h.nvmeGB = h.storeGB
		}
		for _, d := range s.Disks {
			h.storeDisk += int64(awssdk.ToInt32(d.Count))
		}
	}
	if e := i.EbsInfo; e != nil {
		h.ebsDedicated = e.AttachmentLimitType == ec2types.AttachmentLimitTypeDedicated
		h.ebsAttachments = int64(awssdk.ToInt32(e.MaximumEbsAttachments))
		if e.EbsOptimizedSupport == ec2types.EbsOptimizedSupportDefault && e.EbsOptimizedInfo != nil {
			h.ebsBandwidth = int64(awssdk.ToInt32(e.EbsOptimizedInfo.MaximumBandwidthInMbps))
		}
	}
}

func (h *hardware) devices(i *ec2types.InstanceTypeInfo) {
	if i.GpuInfo != nil {
		for _, g := range i.GpuInfo.Gpus {
			d := device{name: awssdk.ToString(g.Name), manufacturer: awssdk.ToString(g.Manufacturer), count: int64(awssdk.ToInt32(g.Count))}
			if g.MemoryInfo != nil {
				d.memoryMiB = int64(awssdk.ToInt32(g.MemoryInfo.SizeInMiB))
			}
			h.gpus = append(h.gpus, d)
		}
	}
	// Neuron devices are described twice; only the newer description contains their cores.
	if i.NeuronInfo != nil {
		for _, n := range i.NeuronInfo.NeuronDevices {
			d := device{name: awssdk.ToString(n.Name), manufacturer: "aws", count: int64(awssdk.ToInt32(n.Count)), neuron: true}
			if n.MemoryInfo != nil {
				d.memoryMiB = int64(awssdk.ToInt32(n.MemoryInfo.SizeInMiB))
			}
			if n.CoreInfo != nil {
				h.neuronCores += d.count * int64(awssdk.ToInt32(n.CoreInfo.Count))
			}
			h.accelerators = append(h.accelerators, d)
		}
		return
	}
	if i.InferenceAcceleratorInfo != nil {
		for _, a := range i.InferenceAcceleratorInfo.Accelerators {
			h.accelerators = append(h.accelerators, device{name: awssdk.ToString(a.Name), manufacturer: awssdk.ToString(a.Manufacturer), count: int64(awssdk.ToInt32(a.Count))})
		}
	}
}

// labelValue returns a name as Karpenter writes it into a label: lower case, with dashes for blanks.
func labelValue(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "-")) }

func byName(a, b *hardware) int { return cmp.Compare(a.name, b.name) }
