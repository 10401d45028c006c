package devices

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// Declared are devices that nodes of some instance types have, as an annotation of their node class says.
type Declared struct {
	// InstanceTypes are names ("g5.xlarge"), or families ("g5.*").
	InstanceTypes []string `json:"instanceTypes"`
	Driver        string   `json:"driver"`
	// Count is how many such devices each node has.
	Count      int                          `json:"count"`
	Attributes map[string]Attribute         `json:"attributes,omitempty"`
	Capacity   map[string]resource.Quantity `json:"capacity,omitempty"`
}

// Attribute has one of its values, as in a ResourceSlice.
type Attribute struct {
	Int     *int64  `json:"int,omitempty"`
	Bool    *bool   `json:"bool,omitempty"`
	String  *string `json:"string,omitempty"`
	Version *string `json:"version,omitempty"`
}

// Limits of an annotation: those of a ResourceSlice, and what a catalog can have.
const (
	maxDeclared   = 256
	maxDevices    = resourcev1.ResourceSliceMaxDevices
	maxProperties = resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	maxTypes      = 256
)

// Parse reads the annotation of a node class strictly: unknown fields and invalid values are errors that name the entry. An empty annotation
// declares nothing.
func Parse(annotation string) ([]Declared, error) {
	if strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	var out []Declared
	if err := yaml.UnmarshalStrict([]byte(annotation), &out); err != nil {
		return nil, fmt.Errorf("is no list of devices: %w", err)
	}
	if len(out) > maxDeclared {
		return nil, fmt.Errorf("has %d entries, at most %d are allowed", len(out), maxDeclared)
	}
	for i := range out {
		if err := out[i].validate(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return out, tooMany(out)
}

// tooMany returns an error if a driver has more devices on a node than one ResourceSlice can hold.
func tooMany(all []Declared) error {
	for i := range all {
		for _, name := range all[i].InstanceTypes {
			sum := 0
			for j := range all {
				if all[j].Driver == all[i].Driver && (all[j].on(name) || slices.Contains(all[j].InstanceTypes, name)) {
					sum += all[j].Count
				}
			}
			if sum > maxDevices {
				return fmt.Errorf("driver %s has %d devices on %s, at most %d are allowed", all[i].Driver, sum, name, maxDevices)
			}
		}
	}
	return nil
}

func (d *Declared) validate() error {
	if len(d.InstanceTypes) == 0 || len(d.InstanceTypes) > maxTypes {
		return fmt.Errorf("instanceTypes: must name 1 to %d instance types or families", maxTypes)
	}
	for _, t := range d.InstanceTypes {
		family, size, _ := strings.Cut(t, ".") // without the dot it would match nothing
		if family == "" || size == "" || strings.ContainsAny(family, "*?[] \t\n/") || size != "*" && strings.ContainsAny(size, "*?[] \t\n/") {
			return fmt.Errorf("instanceTypes: %q is neither an instance type (g5.xlarge) nor a family (g5.*)", t)
		}
	}
	if problems := validation.IsDNS1123Subdomain(d.Driver); len(problems) > 0 || len(d.Driver) > resourcev1.DriverNameMaxLength {
		return fmt.Errorf("driver: %q is not the name of a driver: %s", d.Driver, strings.Join(problems, ", "))
	}
	if d.Count < 1 || d.Count > maxDevices {
		return fmt.Errorf("count: must be between 1 and %d", maxDevices)
	}
	if len(d.Attributes)+len(d.Capacity) > maxProperties {
		return fmt.Errorf("attributes, capacity: at most %d are allowed", maxProperties)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		if err := cmp.Or(validName(name), d.Attributes[name].validate()); err != nil {
			return fmt.Errorf("attributes[%s]: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		q := d.Capacity[name]
		if err := validName(name); err != nil {
			return fmt.Errorf("capacity[%s]: %w", name, err)
		}
		if q.Sign() < 0 {
			return fmt.Errorf("capacity[%s]: must not be negative", name)
		}
	}
	return nil
}

// validName checks the name of an attribute or capacity: a C identifier, with or without a domain before it.
func validName(name string) error {
	domain, id, qualified := strings.Cut(name, "/")
	if !qualified {
		domain, id = "", name
	}
	if qualified && (len(validation.IsDNS1123Subdomain(domain)) > 0 || len(domain) > resourcev1.DeviceMaxDomainLength) {
		return fmt.Errorf("%q is not a domain", domain)
	}
	if len(validation.IsCIdentifier(id)) > 0 || len(id) > resourcev1.DeviceMaxIDLength {
		return fmt.Errorf("%q is not an identifier", id)
	}
	return nil
}

func (a Attribute) validate() error {
	set := 0
	for _, is := range []bool{a.Int != nil, a.Bool != nil, a.String != nil, a.Version != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return errors.New("must have exactly one of int, bool, string and version")
	}
	for _, s := range []*string{a.String, a.Version} {
		if s != nil && len(*s) > resourcev1.DeviceAttributeMaxValueLength {
			return fmt.Errorf("is longer than %d bytes", resourcev1.DeviceAttributeMaxValueLength)
		}
	}
	if a.Version != nil {
		if _, err := version.ParseSemantic(*a.Version); err != nil || strings.HasPrefix(*a.Version, "v") {
			return fmt.Errorf("version: %q is not a semantic version (1.2.3)", *a.Version)
		}
	}
	return nil
}

// on reports whether nodes of the instance type have the devices.
func (d *Declared) on(instanceType string) bool {
	family, _, _ := strings.Cut(instanceType, ".")
	return slices.ContainsFunc(d.InstanceTypes, func(t string) bool { return t == instanceType || t == family+".*" })
}

// declaredOn returns what is declared for an instance type: one slice for each driver.
func declaredOn(all []Declared, instanceType string) []resourcev1.ResourceSliceSpec {
	byDriver := map[string][]resourcev1.Device{}
	for i := range all {
		if d := &all[i]; d.on(instanceType) {
			for range d.Count {
				byDriver[d.Driver] = append(byDriver[d.Driver], d.device(len(byDriver[d.Driver])))
			}
		}
	}
	out := make([]resourcev1.ResourceSliceSpec, 0, len(byDriver))
	for _, driver := range slices.Sorted(maps.Keys(byDriver)) {
		if len(byDriver[driver]) <= maxDevices { // else Parse has not seen that names and families overlap
			out = append(out, resourcev1.ResourceSliceSpec{Driver: driver, Devices: byDriver[driver]})
		}
	}
	return out
}

func (d *Declared) device(number int) resourcev1.Device {
	out := resourcev1.Device{Name: fmt.Sprintf("device-%d", number)}
	if len(d.Attributes) > 0 {
		out.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	}
	for name, a := range d.Attributes {
		out.Attributes[resourcev1.QualifiedName(name)] = resourcev1.DeviceAttribute{IntValue: a.Int, BoolValue: a.Bool, StringValue: a.String, VersionValue: a.Version}
	}
	if len(d.Capacity) > 0 {
		out.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
	}
	for name, q := range d.Capacity {
		out.Capacity[resourcev1.QualifiedName(name)] = resourcev1.DeviceCapacity{Value: q}
	}
	return out
}
