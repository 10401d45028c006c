package workload

import (
	"fmt"
	"hash/fnv"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// Zones are the zones of every workload. Every type is assumed to be offered in all of them.
var Zones = []string{"zone-a", "zone-b", "zone-c"}

// Label keys as Karpenter names them.
const (
	labelCapacityType = "karpenter.sh/capacity-type"
	labelNodePool     = "karpenter.sh/nodepool"
)

var familyParts = regexp.MustCompile(`^([a-z]+)(?:-[0-9]+tb)?([0-9]+)`)

// Types returns the catalogue's types that the pool allows: with a price, not bare metal, and with no accelerators but NVIDIA GPUs.
func (p Pool) Types(c *catalog.Catalog) []*capacity.InstanceType {
	var out []*capacity.InstanceType
	for _, t := range c.Types {
		parts := familyParts.FindStringSubmatch(t.Name)
		price, priced := t.OnDemand()
		if parts == nil || !priced || price <= 0 || len(t.Zones) == 0 || t.BareMetal || strings.Contains(t.Name, "metal") || len(t.Accelerators) > 0 {
			continue
		}
		generation, _ := strconv.Atoi(parts[2])
		var gpus int64
		other := false
		for _, g := range t.GPUs {
			if g.Manufacturer == "NVIDIA" {
				gpus += int64(g.Count)
			} else {
				other = true
			}
		}
		arch := "amd64"
		if t.Arch[0] == "arm64" {
			arch = "arm64"
		}
		if other || !slices.Contains(p.Categories, parts[1]) || generation < p.MinGeneration || !slices.Contains(p.Archs, arch) ||
			(parts[1] == "g" || parts[1] == "p") && gpus == 0 {
			continue
		}
		out = append(out, p.instanceType(t, arch, price, gpus))
	}
	return out
}

// instanceType computes the allocatable resources of a node of the AL2023 family: 7.5 % of memory is withheld for the hypervisor (64
// MiB more on arm64), pods are limited by network interfaces, kube-reserved depends on pods and cores, and the eviction threshold is
// 100 MiB.
func (p Pool) instanceType(t *catalog.Type, arch string, price float64, gpus int64) *capacity.InstanceType {
	pods := int64(t.MaxPods())
	mib := t.MemoryMiB
	if arch == "arm64" {
		mib -= 64
	}
	mib -= int64(math.Ceil(float64(mib) * 0.075))
	mib -= 11*pods + 255 + 100
	milli, reserved := float64(t.VCPUs*1000), 0.0
	for _, r := range []struct{ from, to, share float64 }{{0, 1000, .06}, {1000, 2000, .01}, {2000, 4000, .005}, {4000, math.Inf(1), .0025}} {
		if milli > r.from {
			reserved += (math.Min(milli, r.to) - r.from) * r.share
		}
	}
	out := &capacity.InstanceType{
		Name: t.Name,
		Labels: map[string]string{corev1.LabelInstanceTypeStable: t.Name, corev1.LabelArchStable: arch, corev1.LabelOSStable: "linux",
			"karpenter.k8s.aws/instance-family": t.Family(), "karpenter.k8s.aws/instance-cpu": strconv.Itoa(t.VCPUs)},
		Capacity: capacity.Resources{corev1.ResourceCPU: int64(milli), corev1.ResourceMemory: t.MemoryMiB << 20, corev1.ResourcePods: pods},
		Allocatable: capacity.Resources{corev1.ResourceCPU: int64(milli - math.Ceil(reserved)), corev1.ResourceMemory: max(0, mib) << 20,
			corev1.ResourcePods: pods},
	}
	if gpus > 0 {
		out.Capacity["nvidia.com/gpu"], out.Allocatable["nvidia.com/gpu"], out.Special = gpus, gpus, true
	}
	for _, ct := range p.CapacityTypes {
		for _, zone := range Zones {
			out.Offers = append(out.Offers, capacity.Offer{Zone: zone, CapacityType: ct, Price: offerPrice(t.Name, ct, zone, price), Available: true})
		}
	}
	return out
}

// offerPrice returns the price of an offer. In place of real spot prices it uses 30 to 60 % of on-demand, by a hash of type and zone.
func offerPrice(name, capacityType, zone string, onDemand float64) float64 {
	if capacityType == "on-demand" {
		return onDemand
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%s", name, zone)
	return onDemand * (0.30 + 0.30*float64(h.Sum32()%1000)/1000)
}
