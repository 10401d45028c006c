package catalog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// File is a region's instance types, zones and prices as a file. Its schema is docs/catalog.md, so that programs that share no
// code with this one can read and write it.
type File struct {
	Meta  Meta   `json:"meta"`
	Types []Type `json:"instanceTypes"`
}

// Meta names the region and the origin of the data.
type Meta struct {
	Region string `json:"region"`
	// Source and Read are for people: where the data comes from, and when it was read (RFC 3339).
	Source string `json:"source,omitempty"`
	Read   string `json:"read,omitempty"`
}

// Type is an instance type. Unknown values are nil or 0, unless a comment gives the value that is assumed then.
type Type struct {
	Name              string             `json:"name"`
	Arch              []string           `json:"arch"`
	VCPUs             int32              `json:"vcpus"`
	MemoryMiB         int64              `json:"memoryMiB"`
	GPUs              []GPU              `json:"gpus,omitempty"`
	Accelerators      []Accelerator      `json:"accelerators,omitempty"`
	LocalStoreGB      int64              `json:"localStoreGB,omitempty"`
	LocalNVMeGB       int64              `json:"localNvmeGB,omitempty"`
	LocalDisks        int32              `json:"localDisks,omitempty"` // number of disks that LocalStoreGB is spread over; 0: one
	MaxENIs           int32              `json:"maxENIs"`
	MaxENIsFirst      int32              `json:"maxENIsDefaultCard,omitempty"` // 0: MaxENIs
	IPv4PerENI        int32              `json:"ipv4PerENI"`
	NetworkCards      int32              `json:"networkCards,omitempty"` // 0: one
	Hypervisor        string             `json:"hypervisor,omitempty"`
	BareMetal         bool               `json:"bareMetal,omitempty"`
	Burstable         bool               `json:"burstable,omitempty"`
	CPUManufacturer   string             `json:"cpuManufacturer,omitempty"`
	ClockGHz          *float64           `json:"sustainedClockGHz,omitempty"`
	CurrentGeneration bool               `json:"currentGeneration,omitempty"`
	NestedVirtual     bool               `json:"nestedVirtualization,omitempty"`
	NetworkGbps       float64            `json:"networkGbps,omitempty"`
	NetworkPeakGbps   float64            `json:"networkPeakGbps,omitempty"`
	ENA               *bool              `json:"enaSupported,omitempty"` // nil: supported
	EBSBaselineMbps   *int32             `json:"ebsBaselineMbps,omitempty"`
	EBSPeakMbps       *int32             `json:"ebsPeakMbps,omitempty"` // nil: the baseline, at least ebsBurst
	EBSAttachments    int32              `json:"maxEBSAttachments,omitempty"`
	EBSShared         bool               `json:"ebsAttachmentsShared,omitempty"`
	EFASupported      bool               `json:"efaSupported,omitempty"`
	MaxEFA            int32              `json:"maxEFA,omitempty"`
	Encryption        bool               `json:"encryptionInTransit,omitempty"`
	UsageClasses      []string           `json:"usageClasses,omitempty"`
	Virtualization    []string           `json:"virtualizationTypes,omitempty"`
	Zones             []string           `json:"zones,omitempty"`
	OnDemand          *float64           `json:"onDemandUSDPerHour,omitempty"`
	Spot              *float64           `json:"spotUSDPerHour,omitempty"`
	SpotPools         []float64          `json:"spotUSDPerHourPools,omitempty"`
	SpotByZone        map[string]float64 `json:"spotUSDPerHourByZone,omitempty"`
}

// GPU is a kind of GPU in a type; MemMiB is per device.
type GPU struct {
	Count        int32  `json:"count"`
	Manufacturer string `json:"manufacturer"`
	Name         string `json:"name"`
	MemMiB       int32  `json:"memMiB"`
}

// Accelerator is a kind of accelerator other than a GPU. Kind is neuron, inference, fpga or media.
type Accelerator struct {
	Kind           string `json:"kind"`
	Name           string `json:"name"`
	Count          int32  `json:"count"`
	CoresPerDevice int32  `json:"coresPerDevice,omitempty"`
	MemMiB         int32  `json:"memMiB"`
	Manufacturer   string `json:"manufacturer,omitempty"`
}

// Read reads a file. Errors name the type and the member; unknown members are ignored.
func Read(r io.Reader) (*File, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading the catalogue: %w", err)
	}
	f := &File{}
	if err := json.Unmarshal(raw, f); err != nil {
		return nil, fmt.Errorf("the catalogue doesn't have the format that docs/catalog.md describes: %w", err)
	}
	if f.Meta.Region == "" {
		return nil, fmt.Errorf("catalogue: meta.region is required")
	}
	if len(f.Types) == 0 {
		return nil, fmt.Errorf("catalogue: instanceTypes is required")
	}
	slices.SortFunc(f.Types, func(a, b Type) int { return cmp.Compare(a.Name, b.Name) })
	for i := range f.Types {
		t := &f.Types[i]
		if err := t.valid(); err != nil {
			return nil, fmt.Errorf("catalogue: instance type %q: %w", t.Name, err)
		}
		if i > 0 && f.Types[i-1].Name == t.Name {
			return nil, fmt.Errorf("catalogue: instance type %q is listed twice", t.Name)
		}
	}
	return f, nil
}

// Write writes the form that Read reads, with one type per line, so that files can be compared.
func (f *File) Write(w io.Writer) error {
	meta, err := json.Marshal(f.Meta)
	if err != nil {
		return fmt.Errorf("writing the catalogue: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "{\"meta\":%s,\n\"instanceTypes\":[", meta)
	for i := range f.Types {
		line, err := json.Marshal(&f.Types[i])
		if err != nil {
			return fmt.Errorf("writing the catalogue: instance type %q: %w", f.Types[i].Name, err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.Write(line)
	}
	b.WriteString("\n]}\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the catalogue: %w", err)
	}
	return nil
}

// Region returns what the refresh loops would know of the region after asking AWS.
func (f *File) Region() *Region {
	onDemand, spot := Prices{}, Prices{}
	out := &Region{Zones: map[string][]string{}, Prices: AllRead(onDemand, spot), Settled: true}
	for i := range f.Types {
		t := &f.Types[i]
		if len(t.Virtualization) > 0 && !slices.Contains(t.Virtualization, "hvm") {
			continue
		}
		h, ok := HardwareOf(t.info())
		if !ok || len(t.Zones) == 0 {
			continue
		}
		out.Types = append(out.Types, h)
		out.Zones[t.Name] = slices.Sorted(slices.Values(t.Zones))
		if t.OnDemand != nil {
			onDemand[Pool{InstanceType: t.Name}] = *t.OnDemand
		}
		for _, zone := range t.Zones {
			if p, ok := t.spot(zone); ok {
				spot[Pool{t.Name, zone}] = p
			}
		}
	}
	slices.SortFunc(out.Types, byName)
	return out
}

// valid returns an error that names the member that is invalid.
func (t *Type) valid() error {
	family, size, ok := strings.Cut(t.Name, ".")
	if !ok || family == "" || size == "" {
		return errors.New("name is not family.size")
	}
	switch {
	case len(t.Arch) == 0:
		return errors.New("arch is required")
	case t.VCPUs <= 0:
		return errors.New("vcpus is required and positive")
	case t.MemoryMiB <= 0:
		return errors.New("memoryMiB is required and positive")
	case t.MemoryMiB > math.MaxInt64>>20:
		return errors.New("memoryMiB is more than can be counted")
	case t.MaxENIs <= 0:
		return errors.New("maxENIs is required and positive")
	case t.IPv4PerENI <= 0:
		return errors.New("ipv4PerENI is required and positive")
	}
	for _, m := range []struct {
		name  string
		value int64
	}{
		{"localStoreGB", t.LocalStoreGB}, {"localNvmeGB", t.LocalNVMeGB}, {"localDisks", int64(t.LocalDisks)}, {"maxENIsDefaultCard", int64(t.MaxENIsFirst)},
		{"networkCards", int64(t.NetworkCards)}, {"maxEBSAttachments", int64(t.EBSAttachments)}, {"maxEFA", int64(t.MaxEFA)},
	} {
		if m.value < 0 || m.value > math.MaxInt64/1_000_000_000 {
			return fmt.Errorf("%s is out of range", m.name)
		}
	}
	const mostCards = 256
	if t.NetworkCards > mostCards {
		return fmt.Errorf("networkCards is more than %d", mostCards)
	}
	for _, d := range t.GPUs {
		if d.Count < 0 || d.MemMiB < 0 {
			return errors.New("gpus: count and memMiB must not be negative")
		}
	}
	for _, d := range t.Accelerators {
		if d.Count < 0 || d.MemMiB < 0 || d.CoresPerDevice < 0 {
			return errors.New("accelerators: count, memMiB and coresPerDevice must not be negative")
		}
	}
	return t.validPrices()
}

func (t *Type) validPrices() error {
	if p := t.OnDemand; p != nil && *p <= 0 {
		return errors.New("onDemandUSDPerHour is not a price")
	}
	if p := t.Spot; p != nil && *p <= 0 {
		return errors.New("spotUSDPerHour is not a price")
	}
	for _, p := range t.SpotPools {
		if p <= 0 {
			return errors.New("spotUSDPerHourPools: not a price")
		}
	}
	for zone, p := range t.SpotByZone {
		if p <= 0 {
			return fmt.Errorf("spotUSDPerHourByZone[%s] is not a price", zone)
		}
	}
	return nil
}
