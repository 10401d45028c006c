package aws

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aws/karpenter-provider-aws/pkg/apis"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
)

// labelsOf returns the labels that every node of the type has, with the values Karpenter gives them. Zone, capacity type and other
// labels of an offering are not included.
func labelsOf(h *hardware, region string, f *family) map[string]string {
	l := map[string]string{
		corev1.LabelInstanceTypeStable: h.name,
		corev1.LabelArchStable:         h.arch,
		corev1.LabelOSStable:           string(corev1.Linux),
		corev1.LabelTopologyRegion:     region,

		ec2nc.LabelInstanceCPU:                          number(h.vcpu),
		ec2nc.LabelInstanceMemory:                       number(h.memoryMiB),
		ec2nc.LabelInstanceHypervisor:                   h.hypervisor,
		ec2nc.LabelInstanceEncryptionInTransitSupported: strconv.FormatBool(h.encryption),
		ec2nc.LabelInstanceCapabilityFlex:               strconv.FormatBool(strings.Contains(h.family, "-flex")),
	}
	set := func(key, value string) {
		if value != "" {
			l[key] = value
		}
	}
	set(corev1.LabelOSStable, f.os)
	set(corev1.LabelWindowsBuild, f.build)
	set(ec2nc.LabelInstanceCPUManufacturer, h.cpuManufacturer)
	set(ec2nc.LabelInstanceCategory, h.category)
	set(ec2nc.LabelInstanceGeneration, h.generation)
	if h.size != "" {
		l[ec2nc.LabelInstanceFamily], l[ec2nc.LabelInstanceSize] = h.family, h.size
	}
	l[ec2nc.LabelInstanceCPUSustainedClockSpeedMhz] = number(h.clockMHz)
	if h.ebsBandwidth > 0 {
		l[ec2nc.LabelInstanceEBSBandwidth] = number(h.ebsBandwidth)
	}
	if h.bandwidth > 0 {
		l[ec2nc.LabelInstanceNetworkBandwidth] = number(h.bandwidth)
	}
	if h.nvmeGB > 0 {
		l[ec2nc.LabelInstanceLocalNVME] = number(h.nvmeGB)
	}
	// For an instance with two kinds of device, no label value would be true of both.
	if len(h.gpus) == 1 {
		g := h.gpus[0]
		set(ec2nc.LabelInstanceGPUName, labelValue(g.name))
		set(ec2nc.LabelInstanceGPUManufacturer, labelValue(g.manufacturer))
		l[ec2nc.LabelInstanceGPUCount] = number(g.count)
		l[ec2nc.LabelInstanceGPUMemory] = number(g.memoryMiB)
	}
	if f.gpuLabel != "" && slices.ContainsFunc(h.gpus, func(g device) bool { return strings.EqualFold(g.manufacturer, "nvidia") }) {
		l[f.gpuLabel] = "true"
	}
	if len(h.accelerators) == 1 {
		a := h.accelerators[0]
		set(ec2nc.LabelInstanceAcceleratorName, labelValue(a.name))
		set(ec2nc.LabelInstanceAcceleratorManufacturer, labelValue(a.manufacturer))
		l[ec2nc.LabelInstanceAcceleratorCount] = number(a.count)
	}
	return l
}

// bootLabels returns the labels that the kubelet is given. The Node object carries all labels from the start; these are for a kubelet
// that finds no Node object. Labels that follow from the instance type are left out, because otherwise each choice of types would need
// its own launch template, and so are the domains that a kubelet may not set.
func bootLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for k, v := range labels {
		if domain, _, ok := strings.Cut(k, "/"); ok {
			if domain == "kubernetes.io" || domain == "k8s.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
				continue
			}
		}
		if strings.HasPrefix(k, apis.Group+"/instance-") || k == labelNVIDIA || slices.Contains(offerLabels, k) {
			continue
		}
		out[k] = v
	}
	return out
}

var offerLabels = []string{
	ec2nc.LabelTopologyZoneID, ec2nc.LabelCapacityReservationID, ec2nc.LabelCapacityReservationType,
	ec2nc.LabelCapacityReservationInterruptible, ec2nc.LabelPlacementGroupPartition, ec2nc.LabelInstanceTenancy,
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
