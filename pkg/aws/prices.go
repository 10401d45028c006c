package aws

import "strings"

// price returns what an offering costs in $/h. ok is false if prices are known and this type has none there: it can't be launched.
// While no prices are known at all, types are ordered by estimate.
func (f *regionData) price(h *hardware, zone string, spot bool) (p float64, ok bool) {
	if !spot {
		if f.onDemand == nil {
			return estimate(h), true
		}
		p, ok = f.onDemand[h.name]
		return p, ok
	}
	if f.spot == nil {
		p, ok = f.price(h, zone, false)
		return p * spotShare, ok
	}
	p, ok = f.spot[zonalType{h.name, zone}]
	return p, ok
}

// spotShare is the assumed price of a spot instance as a share of the on-demand price, until spot prices are known.
const spotShare = 0.5

// estimate is a rule of thumb for the on-demand price: linear in cores, memory, local disks and the memory of accelerators. It follows
// the price lists of us-east-1 closely enough to order instance types.
func estimate(h *hardware) float64 {
	const (
		perCore, perGiB = 0.034, 0.0035
		perNVMeGB       = 0.0002
		perGPUGiB       = 0.035
		perAccelerator  = 0.8
		arm, amd, flex  = 0.8, 0.9, 0.95
		burstPerGiB     = 0.0104 // burstable types are priced by memory, including their cores
	)
	p := perCore*float64(h.vcpu) + perGiB*float64(h.memoryMiB)/1024
	if h.category == "t" {
		p = burstPerGiB * float64(h.memoryMiB) / 1024
	}
	if h.arch == "arm64" {
		p *= arm
	} else if h.cpuManufacturer == "amd" {
		p *= amd
	}
	if strings.Contains(h.family, "-flex") {
		p *= flex
	}
	p += perNVMeGB * float64(h.nvmeGB)
	for _, g := range h.gpus {
		p += perGPUGiB * float64(g.count) * float64(max(g.memoryMiB, 16<<10)) / 1024
	}
	for _, a := range h.accelerators {
		p += perAccelerator * float64(a.count)
	}
	return p
}
