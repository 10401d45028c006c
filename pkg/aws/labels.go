package aws

import (
	"slices"
	"strconv"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
)

// labelsOf returns the labels that every node of the type has, with the values Karpenter gives them. Zone, capacity type and other
// labels of an offering are not included.
func labelsOf(h *catalog.Hardware, region string, f *bootstrap.Family) map[string]string {
	l := map[string]string{
		corev1.LabelInstanceTypeStable: h.Name,
		corev1.LabelArchStable:         h.Arch,
		corev1.LabelOSStable:           string(corev1.Linux),
		corev1.LabelTopologyRegion:     region,

		ec2nc.LabelInstanceCPU:                          number(h.VCPU),
		ec2nc.LabelInstanceMemory:                       number(h.MemoryMiB),
		ec2nc.LabelInstanceHypervisor:                   h.Hypervisor,
		ec2nc.LabelInstanceEncryptionInTransitSupported: strconv.FormatBool(h.Encryption),
		ec2nc.LabelInstanceCapabilityFlex:               strconv.FormatBool(strings.Contains(h.Family, "-flex")),
	}
	set := func(key, value string) {
		if value != "" {
			l[key] = value
		}
	}
	set(corev1.LabelOSStable, f.OS)
	set(corev1.LabelWindowsBuild, f.Build)
	set(ec2nc.LabelInstanceCPUManufacturer, h.CPUManufacturer)
	set(ec2nc.LabelInstanceCategory, h.Category)
	set(ec2nc.LabelInstanceGeneration, h.Generation)
	if h.Size != "" {
		l[ec2nc.LabelInstanceFamily], l[ec2nc.LabelInstanceSize] = h.Family, h.Size
	}
	l[ec2nc.LabelInstanceCPUSustainedClockSpeedMhz] = number(h.ClockMHz)
	if h.EBSBandwidth > 0 {
		l[ec2nc.LabelInstanceEBSBandwidth] = number(h.EBSBandwidth)
	}
	if h.Bandwidth > 0 {
		l[ec2nc.LabelInstanceNetworkBandwidth] = number(h.Bandwidth)
	}
	if h.NVMeGB > 0 {
		l[ec2nc.LabelInstanceLocalNVME] = number(h.NVMeGB)
	}
	// For an instance with two kinds of device, no label value would be true of both.
	if len(h.GPUs) == 1 {
		g := h.GPUs[0]
		set(ec2nc.LabelInstanceGPUName, catalog.LabelValue(g.Name))
		set(ec2nc.LabelInstanceGPUManufacturer, catalog.LabelValue(g.Manufacturer))
		l[ec2nc.LabelInstanceGPUCount] = number(g.Count)
		l[ec2nc.LabelInstanceGPUMemory] = number(g.MemoryMiB)
	}
	if f.GPULabel != "" && slices.ContainsFunc(h.GPUs, func(g catalog.Device) bool { return strings.EqualFold(g.Manufacturer, "nvidia") }) {
		l[f.GPULabel] = "true"
	}
	if len(h.Accelerators) == 1 {
		a := h.Accelerators[0]
		set(ec2nc.LabelInstanceAcceleratorName, catalog.LabelValue(a.Name))
		set(ec2nc.LabelInstanceAcceleratorManufacturer, catalog.LabelValue(a.Manufacturer))
		l[ec2nc.LabelInstanceAcceleratorCount] = number(a.Count)
	}
	return l
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
