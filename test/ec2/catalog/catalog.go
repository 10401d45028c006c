package catalog

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Catalog holds the instance types of one region. It is not changed after it has been created.
type Catalog struct {
	Region string
	// Types sorted by name.
	Types  []*Type
	byName map[string]*Type
}

// file is the JSON format.
type file struct {
	Meta struct {
		Region string `json:"region"`
	} `json:"meta"`
	InstanceTypes []*Type `json:"instanceTypes"`
}

// Load reads the JSON format. It ignores unknown fields; an error names the type and the field.
func Load(r io.Reader) (*Catalog, error) {
	var f file
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return nil, fmt.Errorf("decoding catalogue: %w", err)
	}
	if f.Meta.Region == "" {
		return nil, fmt.Errorf("catalogue: meta.region is missing")
	}
	return newCatalog(f.Meta.Region, f.InstanceTypes)
}

// Write writes the JSON format that Load reads.
func (c *Catalog) Write(w io.Writer) error {
	f := file{InstanceTypes: c.Types}
	f.Meta.Region = c.Region
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(f)
}

func newCatalog(region string, types []*Type) (*Catalog, error) {
	if len(types) == 0 {
		return nil, fmt.Errorf("catalogue: instanceTypes is empty")
	}
	c := &Catalog{Region: region, Types: slices.Clone(types), byName: make(map[string]*Type, len(types))}
	slices.SortFunc(c.Types, func(a, b *Type) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range c.Types {
		switch {
		case t.Name == "" || !strings.Contains(t.Name, "."):
			return nil, fmt.Errorf("catalogue: instance type name %q is not family.size", t.Name)
		case c.byName[t.Name] != nil:
			return nil, fmt.Errorf("catalogue: instance type %s is listed twice", t.Name)
		case t.VCPUs <= 0:
			return nil, fmt.Errorf("catalogue: instance type %s: vcpus is missing", t.Name)
		case t.MemoryMiB <= 0:
			return nil, fmt.Errorf("catalogue: instance type %s: memoryMiB is missing", t.Name)
		case len(t.Arch) == 0:
			return nil, fmt.Errorf("catalogue: instance type %s: arch is missing", t.Name)
		case t.MaxENIs <= 0 || t.IPv4PerENI <= 0:
			return nil, fmt.Errorf("catalogue: instance type %s: maxENIs or ipv4PerENI is missing", t.Name)
		}
		t.NetworkCards = max(1, t.NetworkCards)
		if t.MaxENIsDefaultCard == 0 {
			t.MaxENIsDefaultCard = t.MaxENIs
		}
		c.byName[t.Name] = t
	}
	return c, nil
}

// Type returns the type of that name, or nil.
func (c *Catalog) Type(name string) *Type { return c.byName[name] }

// Families returns a catalogue with only the types of some families, for tests that need no more.
func (c *Catalog) Families(names ...string) *Catalog {
	out := &Catalog{Region: c.Region, byName: map[string]*Type{}}
	for _, t := range c.Types {
		if slices.Contains(names, t.Family()) {
			out.Types = append(out.Types, t)
			out.byName[t.Name] = t
		}
	}
	return out
}

// InRegion returns the catalogue with its zones renamed to another region's: us-west-2a becomes eu-central-1a.
func (c *Catalog) InRegion(region string) *Catalog {
	if region == c.Region {
		return c
	}
	out := &Catalog{Region: region, byName: make(map[string]*Type, len(c.Types))}
	for _, t := range c.Types {
		moved := *t
		moved.Zones = make([]string, len(t.Zones))
		for i, z := range t.Zones {
			moved.Zones[i] = region + strings.TrimPrefix(z, c.Region)
		}
		moved.SpotUSDPerHourByZone = make(map[string]float64, len(t.SpotUSDPerHourByZone))
		for z, price := range t.SpotUSDPerHourByZone {
			moved.SpotUSDPerHourByZone[region+strings.TrimPrefix(z, c.Region)] = price
		}
		out.Types = append(out.Types, &moved)
		out.byName[t.Name] = &moved
	}
	return out
}
