package ec2

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

type typeItem struct {
	Name          string           `xml:"instanceType"`
	Current       bool             `xml:"currentGeneration"`
	UsageClasses  []string         `xml:"supportedUsageClasses>item"`
	RootDevices   []string         `xml:"supportedRootDeviceTypes>item"`
	Virtual       []string         `xml:"supportedVirtualizationTypes>item"`
	BareMetal     bool             `xml:"bareMetal"`
	Hypervisor    string           `xml:"hypervisor,omitempty"`
	Processor     processorItem    `xml:"processorInfo"`
	VCPU          vcpuItem         `xml:"vCpuInfo"`
	MemoryMiB     int64            `xml:"memoryInfo>sizeInMiB"`
	HasStorage    bool             `xml:"instanceStorageSupported"`
	Storage       *storageItem     `xml:"instanceStorageInfo"`
	EBS           ebsItem          `xml:"ebsInfo"`
	Network       networkItem      `xml:"networkInfo"`
	GPU           *gpuItem         `xml:"gpuInfo"`
	FPGA          *fpgaItem        `xml:"fpgaInfo"`
	Inference     *acceleratorItem `xml:"inferenceAcceleratorInfo"`
	Neuron        *neuronItem      `xml:"neuronInfo"`
	Placement     []string         `xml:"placementGroupInfo>supportedStrategies>item"`
	Burstable     bool             `xml:"burstablePerformanceSupported"`
	DedicatedHost bool             `xml:"dedicatedHostsSupported"`
	BootModes     []string         `xml:"supportedBootModes>item"`
	Enclaves      string           `xml:"nitroEnclavesSupport"`
	TPM           string           `xml:"nitroTpmSupport"`
}

type processorItem struct {
	Architectures []string `xml:"supportedArchitectures>item"`
	ClockGHz      *float64 `xml:"sustainedClockSpeedInGhz"`
	Manufacturer  string   `xml:"manufacturer"`
}

type vcpuItem struct {
	VCPUs   int `xml:"defaultVCpus"`
	Cores   int `xml:"defaultCores"`
	Threads int `xml:"defaultThreadsPerCore"`
}

type storageItem struct {
	TotalGB int64  `xml:"totalSizeInGB"`
	NVMe    string `xml:"nvmeSupport"`
	Disks   []struct {
		GB    int64  `xml:"sizeInGB"`
		Count int    `xml:"count"`
		Type  string `xml:"type"`
	} `xml:"disks>item"`
}

type ebsItem struct {
	Optimized  string        `xml:"ebsOptimizedSupport"`
	Encryption string        `xml:"encryptionSupport"`
	NVMe       string        `xml:"nvmeSupport"`
	Bandwidth  *ebsBandwidth `xml:"ebsOptimizedInfo"`
	LimitType  string        `xml:"attachmentLimitType"`
	Limit      int           `xml:"maximumEbsAttachments"`
}

type ebsBandwidth struct {
	Baseline int `xml:"baselineBandwidthInMbps"`
	Maximum  int `xml:"maximumBandwidthInMbps"`
}

type networkItem struct {
	Performance string     `xml:"networkPerformance"`
	Interfaces  int        `xml:"maximumNetworkInterfaces"`
	Cards       int        `xml:"maximumNetworkCards"`
	DefaultCard int        `xml:"defaultNetworkCardIndex"`
	NetCards    []cardItem `xml:"networkCards>item"`
	IPv4        int        `xml:"ipv4AddressesPerInterface"`
	IPv6        int        `xml:"ipv6AddressesPerInterface"`
	IPv6OK      bool       `xml:"ipv6Supported"`
	ENA         string     `xml:"enaSupport"`
	EFA         bool       `xml:"efaSupported"`
	EFAInfo     *efaItem   `xml:"efaInfo"`
	Encryption  bool       `xml:"encryptionInTransitSupported"`
}

type cardItem struct {
	Index       int     `xml:"networkCardIndex"`
	Performance string  `xml:"networkPerformance"`
	Interfaces  int     `xml:"maximumNetworkInterfaces"`
	Baseline    float64 `xml:"baselineBandwidthInGbps"`
	Peak        float64 `xml:"peakBandwidthInGbps"`
}

type efaItem struct {
	Interfaces int `xml:"maximumEfaInterfaces"`
}

type deviceItem struct {
	Name         string `xml:"name"`
	Manufacturer string `xml:"manufacturer,omitempty"`
	Count        int    `xml:"count"`
	Cores        *int   `xml:"coreInfo>count"`
	MiB          int64  `xml:"memoryInfo>sizeInMiB"`
}

type gpuItem struct {
	Devices []deviceItem `xml:"gpus>item"`
	MiB     int64        `xml:"totalGpuMemoryInMiB"`
}

type fpgaItem struct {
	Devices []deviceItem `xml:"fpgas>item"`
	MiB     int64        `xml:"totalFpgaMemoryInMiB"`
}

type acceleratorItem struct {
	Devices []deviceItem `xml:"accelerators>item"`
	MiB     int64        `xml:"totalInferenceMemoryInMiB"`
}

type neuronItem struct {
	Devices []deviceItem `xml:"neuronDevices>item"`
	MiB     int64        `xml:"totalNeuronDeviceMemoryInMiB"`
}

func (w *world) describeInstanceTypes(r *Request) (any, error) {
	names := r.params.strs("InstanceType")
	if len(names) > 100 {
		return nil, failf("InvalidParameterValue", "The maximum number of instance types is 100")
	}
	for _, n := range names {
		if t := w.cfg.Catalog.Type(n); t == nil || len(t.Zones) == 0 {
			return nil, failf("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", n)
		}
	}
	var types []*catalog.Type
	for _, t := range w.cfg.Catalog.Types {
		ok, err := r.matches(typeMatcher(t))
		if err != nil {
			return nil, err
		}
		if ok && len(t.Zones) > 0 && (len(names) == 0 || slices.Contains(names, t.Name)) {
			types = append(types, t)
		}
	}
	types, next, err := page(r, types, 5, 100, 100, func(t *catalog.Type) string { return t.Name })
	if err != nil {
		return nil, err
	}
	items := make([]typeItem, len(types))
	for i, t := range types {
		items[i] = describeType(t)
	}
	return struct {
		Types []typeItem `xml:"instanceTypeSet>item"`
		Next  string     `xml:"nextToken,omitempty"`
	}{items, next}, nil
}

func typeMatcher(t *catalog.Type) matcher {
	single := tagMatcher(nil, map[string]string{
		"instance-type": t.Name, "bare-metal": strconv.FormatBool(t.BareMetal), "current-generation": strconv.FormatBool(t.CurrentGeneration), "hypervisor": t.Hypervisor,
		"burstable-performance-supported": strconv.FormatBool(t.Burstable), "instance-storage-supported": strconv.FormatBool(t.LocalStoreGB > 0),
		"vcpu-info.default-vcpus": strconv.Itoa(t.VCPUs), "memory-info.size-in-mib": strconv.FormatInt(t.MemoryMiB, 10),
		"network-info.efa-supported": strconv.FormatBool(t.EFASupported),
	})
	return func(name string) ([]string, bool) {
		switch name {
		case "supported-virtualization-type":
			return t.VirtualizationTypes, true
		case "supported-usage-class":
			return t.UsageClasses, true
		case "processor-info.supported-architecture":
			return t.Arch, true
		}
		return single(name)
	}
}

func describeType(t *catalog.Type) typeItem {
	threads := 2
	if slices.Contains(t.Arch, "arm64") || t.VCPUs == 1 {
		threads = 1
	}
	card := performance(t.NetworkGbps/float64(t.NetworkCards), t.NetworkPeakGbps/float64(t.NetworkCards))
	item := typeItem{
		Name: t.Name, Current: t.CurrentGeneration, UsageClasses: t.UsageClasses, RootDevices: []string{"ebs"}, Virtual: t.VirtualizationTypes,
		BareMetal: t.BareMetal, Hypervisor: t.Hypervisor, MemoryMiB: t.MemoryMiB, HasStorage: t.LocalStoreGB > 0,
		Processor: processorItem{t.Arch, t.SustainedClockGHz, t.CPUManufacturer}, VCPU: vcpuItem{t.VCPUs, t.VCPUs / threads, threads},
		EBS: ebsItem{Optimized: "default", Encryption: "supported", NVMe: "required", LimitType: "shared", Limit: t.MaxEBSAttachments},
		Network: networkItem{
			Performance: performance(t.NetworkGbps, t.NetworkPeakGbps), Interfaces: t.MaxENIs, Cards: t.NetworkCards, IPv4: t.IPv4PerENI,
			IPv6: t.IPv4PerENI, IPv6OK: true, ENA: "required", EFA: t.EFASupported, Encryption: t.EncryptionInTransit,
		},
		Placement: t.PlacementStrategies(), Burstable: t.Burstable, DedicatedHost: !t.Burstable, BootModes: []string{"legacy-bios", "uefi"},
		Enclaves: "unsupported", TPM: "unsupported",
	}
	if !t.EBSAttachmentsShared {
		item.EBS.LimitType = "dedicated"
	}
	if t.EBSBaselineMbps != nil {
		peak := max(*t.EBSBaselineMbps, 4750)
		if t.EBSPeakMbps != nil {
			peak = *t.EBSPeakMbps
		}
		item.EBS.Bandwidth = &ebsBandwidth{*t.EBSBaselineMbps, peak}
	}
	for i := range t.NetworkCards {
		item.Network.NetCards = append(item.Network.NetCards, cardItem{i, card, t.MaxENIsDefaultCard, t.NetworkGbps / float64(t.NetworkCards), t.NetworkPeakGbps / float64(t.NetworkCards)})
	}
	if t.EFASupported {
		item.Network.EFAInfo = &efaItem{t.MaxEFA}
	}
	if t.LocalStoreGB > 0 {
		s := &storageItem{TotalGB: t.LocalStoreGB, NVMe: "required"}
		if t.LocalNVMeGB == 0 {
			s.NVMe = "unsupported"
		}
		s.Disks = append(s.Disks, struct {
			GB    int64  `xml:"sizeInGB"`
			Count int    `xml:"count"`
			Type  string `xml:"type"`
		}{t.LocalStoreGB, max(1, t.LocalDisks), "ssd"})
		item.Storage = s
	}
	describeDevices(t, &item)
	return item
}

func describeDevices(t *catalog.Type, item *typeItem) {
	for _, g := range t.GPUs {
		if item.GPU == nil {
			item.GPU = &gpuItem{}
		}
		item.GPU.Devices = append(item.GPU.Devices, deviceItem{Name: g.Name, Manufacturer: g.Manufacturer, Count: g.Count, MiB: g.MemMiB})
		item.GPU.MiB += g.MemMiB * int64(g.Count)
	}
	for _, a := range t.Accelerators {
		d := deviceItem{Name: a.Name, Manufacturer: a.Manufacturer, Count: a.Count, MiB: a.MemMiB}
		total := a.MemMiB * int64(a.Count)
		switch a.Kind {
		case "neuron":
			d.Cores, d.Manufacturer = &a.CoresPerDevice, ""
			item.Neuron = &neuronItem{[]deviceItem{d}, total}
		case "fpga":
			item.FPGA = &fpgaItem{[]deviceItem{d}, total}
		case "inference":
			item.Inference = &acceleratorItem{[]deviceItem{d}, total}
		}
	}
}

func performance(baseline, peak float64) string {
	if peak > baseline {
		return fmt.Sprintf("Up to %g Gigabit", peak)
	}
	return fmt.Sprintf("%g Gigabit", baseline)
}

type offeringItem struct {
	Type         string `xml:"instanceType"`
	LocationType string `xml:"locationType"`
	Location     string `xml:"location"`
}

func (w *world) describeInstanceTypeOfferings(r *Request) (any, error) {
	kind := r.params.str("LocationType")
	if kind == "" {
		kind = "region"
	}
	var items []offeringItem
	for _, t := range w.cfg.Catalog.Types {
		seen := map[string]bool{}
		for _, s := range w.network.subnets {
			if !t.OfferedIn(s.zone) {
				continue
			}
			location := map[string]string{"region": w.cfg.Region, "availability-zone": s.zone, "availability-zone-id": s.zoneID}[kind]
			if location == "" {
				return nil, invalidValue("LocationType", kind, "")
			}
			ok, err := r.matches(tagMatcher(nil, map[string]string{"instance-type": t.Name, "location": location}))
			if err != nil {
				return nil, err
			}
			if ok && !seen[location] {
				seen[location] = true
				items = append(items, offeringItem{t.Name, kind, location})
			}
		}
	}
	key := func(o offeringItem) string { return o.Type + "/" + o.Location }
	slices.SortFunc(items, func(a, b offeringItem) int { return strings.Compare(key(a), key(b)) })
	items, next, err := page(r, items, 5, 1000, 1000, key)
	return struct {
		Offerings []offeringItem `xml:"instanceTypeOfferingSet>item"`
		Next      string         `xml:"nextToken,omitempty"`
	}{items, next}, err
}
