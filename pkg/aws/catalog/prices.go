package catalog

import "strings"

// Price returns what an offering costs in $/h. ok is false if prices are known and this type has none there: it can't be launched.
// While no prices are known at all, types are ordered by estimate.
func (f *Region) Price(h *Hardware, zone string, spot bool) (p float64, ok bool) {
	if !spot {
		if f.OnDemand == nil {
			return Estimate(h), true
		}
		p, ok = f.OnDemand[h.Name]
		return p, ok
	}
	if f.Spot == nil {
		p, ok = f.Price(h, zone, false)
		return p * spotShare, ok
	}
	p, ok = f.Spot[Pool{h.Name, zone}]
	return p, ok
}

// spotShare is the assumed price of a spot instance as a share of the on-demand price, until spot prices are known.
const spotShare = 0.5

// Estimate is a rule of thumb for the on-demand price: linear in cores, memory, local disks and the memory of accelerators. It follows
// the price lists of us-east-1 closely enough to order instance types.
func Estimate(h *Hardware) float64 {
	const (
		perCore, perGiB = 0.034, 0.0035
		perNVMeGB       = 0.0002
		perGPUGiB       = 0.035
		perAccelerator  = 0.8
		arm, amd, flex  = 0.8, 0.9, 0.95
		burstPerGiB     = 0.0104 // burstable types are priced by memory, including their cores
	)
	p := perCore*float64(h.VCPU) + perGiB*float64(h.MemoryMiB)/1024
	if h.Category == "t" {
		p = burstPerGiB * float64(h.MemoryMiB) / 1024
	}
	if h.Arch == "arm64" {
		p *= arm
	} else if h.CPUManufacturer == "amd" {
		p *= amd
	}
	if strings.Contains(h.Family, "-flex") {
		p *= flex
	}
	p += perNVMeGB * float64(h.NVMeGB)
	for _, g := range h.GPUs {
		p += perGPUGiB * float64(g.Count) * float64(max(g.MemoryMiB, 16<<10)) / 1024
	}
	for _, a := range h.Accelerators {
		p += perAccelerator * float64(a.Count)
	}
	return p
}
