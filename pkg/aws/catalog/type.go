package catalog

import (
	"hash/fnv"
	"math"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Kinds of accelerators in a catalogue.
const (
	kindNeuron    = "neuron"
	kindInference = "inference"
	kindFPGA      = "fpga"
	kindMedia     = "media"
)

// ebsBurst is the EBS burst bandwidth of small sizes, in Mbit/s, where a catalogue doesn't contain it.
const ebsBurst = 4750

// typeOf returns the part of a type's description that a catalogue keeps; zones and prices come from other calls.
func typeOf(i *ec2types.InstanceTypeInfo) Type {
	t := Type{
		Name: string(i.InstanceType), Hypervisor: string(i.Hypervisor), BareMetal: awssdk.ToBool(i.BareMetal),
		Burstable: awssdk.ToBool(i.BurstablePerformanceSupported), CurrentGeneration: awssdk.ToBool(i.CurrentGeneration),
	}
	for _, u := range i.SupportedUsageClasses {
		t.UsageClasses = append(t.UsageClasses, string(u))
	}
	for _, v := range i.SupportedVirtualizationTypes {
		t.Virtualization = append(t.Virtualization, string(v))
	}
	if p := i.ProcessorInfo; p != nil {
		for _, a := range p.SupportedArchitectures {
			t.Arch = append(t.Arch, string(a))
		}
		t.CPUManufacturer, t.ClockGHz = awssdk.ToString(p.Manufacturer), p.SustainedClockSpeedInGhz
		t.NestedVirtual = slices.Contains(p.SupportedFeatures, ec2types.SupportedAdditionalProcessorFeatureNestedVirtualization)
	}
	if i.VCpuInfo != nil {
		t.VCPUs = awssdk.ToInt32(i.VCpuInfo.DefaultVCpus)
	}
	if i.MemoryInfo != nil {
		t.MemoryMiB = awssdk.ToInt64(i.MemoryInfo.SizeInMiB)
	}
	t.takeNetwork(i.NetworkInfo)
	t.takeStorage(i)
	t.takeDevices(i)
	return t
}

func (t *Type) takeNetwork(n *ec2types.NetworkInfo) {
	if n == nil {
		return
	}
	t.MaxENIs, t.IPv4PerENI = awssdk.ToInt32(n.MaximumNetworkInterfaces), awssdk.ToInt32(n.Ipv4AddressesPerInterface)
	t.NetworkCards, t.Encryption = int32(max(1, len(n.NetworkCards))), awssdk.ToBool(n.EncryptionInTransitSupported)
	if n.EnaSupport == ec2types.EnaSupportUnsupported {
		t.ENA = awssdk.Bool(false)
	}
	t.EFASupported = awssdk.ToBool(n.EfaSupported)
	if n.EfaInfo != nil {
		t.MaxEFA = awssdk.ToInt32(n.EfaInfo.MaximumEfaInterfaces)
	}
	h := Hardware{}
	h.network(n)
	t.MaxENIsFirst, t.NetworkGbps = int32(h.PrimaryInterfaces()), float64(h.Bandwidth)/1000
	for _, c := range n.NetworkCards {
		t.NetworkPeakGbps += awssdk.ToFloat64(c.PeakBandwidthInGbps)
	}
}

func (t *Type) takeStorage(i *ec2types.InstanceTypeInfo) {
	h := Hardware{}
	h.storage(i)
	t.LocalStoreGB, t.LocalNVMeGB, t.LocalDisks = h.StoreGB, h.NVMeGB, int32(h.StoreDisk)
	t.EBSAttachments, t.EBSShared = int32(h.EBSAttachments), !h.EBSDedicated
	if h.EBSBandwidth > 0 {
		t.EBSPeakMbps, t.EBSBaselineMbps = awssdk.Int32(int32(h.EBSBandwidth)), i.EbsInfo.EbsOptimizedInfo.BaselineBandwidthInMbps
	}
}

func (t *Type) takeDevices(i *ec2types.InstanceTypeInfo) {
	add := func(kind string, name, maker *string, count *int32) *Accelerator {
		t.Accelerators = append(t.Accelerators, Accelerator{Kind: kind, Name: awssdk.ToString(name), Manufacturer: awssdk.ToString(maker),
			Count: awssdk.ToInt32(count)})
		return &t.Accelerators[len(t.Accelerators)-1]
	}
	if i.GpuInfo != nil {
		for _, g := range i.GpuInfo.Gpus {
			gpu := GPU{Count: awssdk.ToInt32(g.Count), Manufacturer: awssdk.ToString(g.Manufacturer), Name: awssdk.ToString(g.Name)}
			if g.MemoryInfo != nil {
				gpu.MemMiB = awssdk.ToInt32(g.MemoryInfo.SizeInMiB)
			}
			t.GPUs = append(t.GPUs, gpu)
		}
	}
	if i.NeuronInfo != nil {
		for _, n := range i.NeuronInfo.NeuronDevices {
			a := add(kindNeuron, n.Name, nil, n.Count)
			if n.MemoryInfo != nil {
				a.MemMiB = awssdk.ToInt32(n.MemoryInfo.SizeInMiB)
			}
			if n.CoreInfo != nil {
				a.CoresPerDevice = awssdk.ToInt32(n.CoreInfo.Count)
			}
		}
	} else if i.InferenceAcceleratorInfo != nil { // for Neuron devices it would describe the same devices again
		for _, d := range i.InferenceAcceleratorInfo.Accelerators {
			a := add(kindInference, d.Name, d.Manufacturer, d.Count)
			if d.MemoryInfo != nil {
				a.MemMiB = awssdk.ToInt32(d.MemoryInfo.SizeInMiB)
			}
		}
	}
	if i.FpgaInfo != nil {
		for _, f := range i.FpgaInfo.Fpgas {
			a := add(kindFPGA, f.Name, f.Manufacturer, f.Count)
			if f.MemoryInfo != nil {
				a.MemMiB = awssdk.ToInt32(f.MemoryInfo.SizeInMiB)
			}
		}
	}
	if i.MediaAcceleratorInfo != nil {
		for _, m := range i.MediaAcceleratorInfo.Accelerators {
			a := add(kindMedia, m.Name, m.Manufacturer, m.Count)
			if m.MemoryInfo != nil {
				a.MemMiB = awssdk.ToInt32(m.MemoryInfo.SizeInMiB)
			}
		}
	}
}

// info returns the type as EC2 would describe it, as far as we use it: types from a file go through the same code as EC2's answers.
func (t *Type) info() *ec2types.InstanceTypeInfo {
	i := &ec2types.InstanceTypeInfo{
		InstanceType: ec2types.InstanceType(t.Name), Hypervisor: ec2types.InstanceTypeHypervisor(t.Hypervisor), BareMetal: &t.BareMetal,
		BurstablePerformanceSupported: &t.Burstable, CurrentGeneration: &t.CurrentGeneration,
		ProcessorInfo: &ec2types.ProcessorInfo{Manufacturer: &t.CPUManufacturer, SustainedClockSpeedInGhz: t.ClockGHz},
		VCpuInfo:      &ec2types.VCpuInfo{DefaultVCpus: &t.VCPUs}, MemoryInfo: &ec2types.MemoryInfo{SizeInMiB: &t.MemoryMiB},
		NetworkInfo: t.networkInfo(), EbsInfo: t.ebsInfo(),
	}
	for _, u := range t.UsageClasses {
		i.SupportedUsageClasses = append(i.SupportedUsageClasses, ec2types.UsageClassType(u))
	}
	for _, v := range t.Virtualization {
		i.SupportedVirtualizationTypes = append(i.SupportedVirtualizationTypes, ec2types.VirtualizationType(v))
	}
	for _, a := range t.Arch {
		i.ProcessorInfo.SupportedArchitectures = append(i.ProcessorInfo.SupportedArchitectures, ec2types.ArchitectureType(a))
	}
	if t.NestedVirtual {
		i.ProcessorInfo.SupportedFeatures = []ec2types.SupportedAdditionalProcessorFeature{ec2types.SupportedAdditionalProcessorFeatureNestedVirtualization}
	}
	if t.LocalStoreGB > 0 {
		s := &ec2types.InstanceStorageInfo{TotalSizeInGB: &t.LocalStoreGB, NvmeSupport: ec2types.EphemeralNvmeSupportRequired,
			Disks: []ec2types.DiskInfo{{Count: awssdk.Int32(max(1, t.LocalDisks))}}}
		if t.LocalNVMeGB == 0 {
			s.NvmeSupport = ec2types.EphemeralNvmeSupportUnsupported
		}
		i.InstanceStorageInfo = s
	}
	t.giveDevices(i)
	return i
}

func (t *Type) networkInfo() *ec2types.NetworkInfo {
	n := &ec2types.NetworkInfo{
		MaximumNetworkInterfaces: &t.MaxENIs, Ipv4AddressesPerInterface: &t.IPv4PerENI, EncryptionInTransitSupported: &t.Encryption,
		EfaSupported: &t.EFASupported, DefaultNetworkCardIndex: awssdk.Int32(0), EnaSupport: ec2types.EnaSupportSupported,
	}
	if t.ENA != nil && !*t.ENA {
		n.EnaSupport = ec2types.EnaSupportUnsupported
	}
	if t.EFASupported {
		n.EfaInfo = &ec2types.EfaInfo{MaximumEfaInterfaces: &t.MaxEFA}
	}
	cards, first := max(1, t.NetworkCards), t.MaxENIsFirst
	if first == 0 {
		first = t.MaxENIs
	}
	other := first
	if cards > 1 && t.MaxENIs > first {
		other = (t.MaxENIs - first) / (cards - 1)
	}
	share, peak := t.NetworkGbps/float64(cards), t.NetworkPeakGbps/float64(cards)
	for c := range cards {
		n.NetworkCards = append(n.NetworkCards, ec2types.NetworkCardInfo{NetworkCardIndex: awssdk.Int32(c), MaximumNetworkInterfaces: awssdk.Int32(other),
			BaselineBandwidthInGbps: &share, PeakBandwidthInGbps: &peak})
	}
	n.NetworkCards[0].MaximumNetworkInterfaces = awssdk.Int32(first)
	return n
}

func (t *Type) ebsInfo() *ec2types.EbsInfo {
	e := &ec2types.EbsInfo{AttachmentLimitType: ec2types.AttachmentLimitTypeDedicated, MaximumEbsAttachments: &t.EBSAttachments}
	if t.EBSShared {
		e.AttachmentLimitType = ec2types.AttachmentLimitTypeShared
	}
	peak := t.EBSPeakMbps
	if peak == nil && t.EBSBaselineMbps != nil {
		peak = awssdk.Int32(max(*t.EBSBaselineMbps, ebsBurst))
	}
	if peak != nil {
		e.EbsOptimizedSupport = ec2types.EbsOptimizedSupportDefault
		e.EbsOptimizedInfo = &ec2types.EbsOptimizedInfo{BaselineBandwidthInMbps: t.EBSBaselineMbps, MaximumBandwidthInMbps: peak}
	}
	return e
}

func (t *Type) giveDevices(i *ec2types.InstanceTypeInfo) {
	for j := range t.GPUs {
		g := &t.GPUs[j]
		if i.GpuInfo == nil {
			i.GpuInfo = &ec2types.GpuInfo{}
		}
		i.GpuInfo.Gpus = append(i.GpuInfo.Gpus, ec2types.GpuDeviceInfo{Count: &g.Count, Manufacturer: &g.Manufacturer, Name: &g.Name,
			MemoryInfo: &ec2types.GpuDeviceMemoryInfo{SizeInMiB: &g.MemMiB}})
	}
	for j := range t.Accelerators {
		switch a := &t.Accelerators[j]; a.Kind {
		case kindNeuron:
			if i.NeuronInfo == nil {
				i.NeuronInfo = &ec2types.NeuronInfo{}
			}
			i.NeuronInfo.NeuronDevices = append(i.NeuronInfo.NeuronDevices, ec2types.NeuronDeviceInfo{Count: &a.Count, Name: &a.Name,
				CoreInfo: &ec2types.NeuronDeviceCoreInfo{Count: &a.CoresPerDevice}, MemoryInfo: &ec2types.NeuronDeviceMemoryInfo{SizeInMiB: &a.MemMiB}})
		case kindInference:
			if i.InferenceAcceleratorInfo == nil {
				i.InferenceAcceleratorInfo = &ec2types.InferenceAcceleratorInfo{}
			}
			i.InferenceAcceleratorInfo.Accelerators = append(i.InferenceAcceleratorInfo.Accelerators,
				ec2types.InferenceDeviceInfo{Count: &a.Count, Manufacturer: &a.Manufacturer, Name: &a.Name})
		}
	}
}

// spot returns the spot price in a zone. Prices without a zone are assigned to zones by a hash of the type's name: any assignment is
// as good, as long as it is always the same (docs/catalog.md).
func (t *Type) spot(zone string) (float64, bool) {
	at := slices.Index(t.Zones, zone)
	switch {
	case at < 0 || !slices.Contains(t.UsageClasses, string(ec2types.UsageClassTypeSpot)):
		return 0, false
	case len(t.SpotByZone) > 0:
		p, ok := t.SpotByZone[zone]
		return p, ok
	case len(t.SpotPools) > 0:
		n := uint64(len(t.SpotPools))
		return t.SpotPools[(uint64(at)+hashOf(t.Name)%n)%n], true
	}
	const usualShare = 0.38 // of the on-demand price
	base := 0.0
	switch {
	case t.Spot != nil:
		base = *t.Spot
	case t.OnDemand != nil:
		base = usualShare * *t.OnDemand
	default:
		return 0, false
	}
	scatter := 0.85 + 0.3*float64(hashOf(t.Name+zone)%1000)/1000
	return math.Round(base*scatter*1e6) / 1e6, true
}

func hashOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}
