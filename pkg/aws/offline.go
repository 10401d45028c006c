package aws

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/reported"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/unavailable"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Offline returns what node classes can run from a catalogue file. It computes instance types, prices, allocatable and labels with the
// code that the Provider uses. What depends on the account is taken from the class's status if there is one, and otherwise assumed: a
// subnet in every zone, and an image for every kind of instance that the class's alias or selector may mean.
type Offline struct {
	region     string
	sizes      nodesize.Config
	owner      ownership.Owner
	regionData *catalog.Region
	zones      []string
}

// OfflineConfig holds the scheduler's settings that influence which nodes there can be, and their size.
type OfflineConfig struct {
	// Zones are the names of the zones with subnets; empty: all zones of the catalogue.
	Zones []string
	// The other fields are the settings of these names in Config, with one difference: a VMMemoryOverheadPercent of 0 means that there is none.
	VMMemoryOverheadPercent float64
	ReservedENIs            int
	PrefixDelegation        bool
	ManagedBy               string
}

// NewOffline prepares a catalogue.
func NewOffline(f *catalog.File, c OfflineConfig) (*Offline, error) {
	overhead := c.VMMemoryOverheadPercent
	if overhead == 0 {
		overhead = -1 // zero would mean the default
	}
	cfg, err := Config{Region: f.Meta.Region, ClusterName: "offline", VMMemoryOverheadPercent: overhead,
		ReservedENIs: c.ReservedENIs, PrefixDelegation: c.PrefixDelegation}.complete()
	if err != nil {
		return nil, err
	}
	o := &Offline{region: cfg.Region, sizes: cfg.sizes(), owner: ownership.Owner{Cluster: cfg.ClusterName, ManagedBy: c.ManagedBy}, regionData: f.Region()}
	known := map[string]bool{}
	for _, zones := range o.regionData.Zones {
		for _, z := range zones {
			known[z] = true
		}
	}
	o.zones = slices.Sorted(maps.Keys(known))
	if len(c.Zones) > 0 {
		for _, z := range c.Zones {
			if !known[z] {
				return nil, fmt.Errorf("zone %q is not in the catalogue of %s, which has %s", z, f.Meta.Region, strings.Join(o.zones, ", "))
			}
		}
		o.zones = c.Zones
	}
	return o, nil
}

// InstanceTypes returns what the class can run and at what price. assumed names what was assumed because only the account knows it;
// the error is why the class can't be used.
func (o *Offline) InstanceTypes(class status.Object) (types []*capacity.InstanceType, assumed []string, err error) {
	nc := class.(*ec2nc.EC2NodeClass)
	r := &resolved{class: nc}
	own := ownTemplate(nc)
	if own != "" {
		r.family, r.settings, err = settingsOfOwn(nc, o.sizes, o.owner)
	} else {
		r.family, r.settings, err = settingsOfClass(nc, o.sizes, o.owner)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("EC2NodeClass %s: %w", nc.Name, err)
	}
	r.subnets = subnetsOf(&nc.Status)
	switch {
	case len(r.subnets) == 0 && len(nc.Status.Conditions) > 0: // a controller has looked for them, or is about to
		return nil, nil, fmt.Errorf("EC2NodeClass %s: status.subnets: there is none", nc.Name)
	case len(r.subnets) == 0:
		for _, zone := range o.zones {
			r.subnets = append(r.subnets, network.Subnet{ID: "any-in-" + zone, Zone: zone})
		}
		assumed = append(assumed, "subnets in "+strings.Join(o.zones, ", "))
	}
	if r.images = imagesOfStatus(&nc.Status); len(r.images) == 0 {
		var what string
		r.images, what = imagesOfTerms(&nc.Spec)
		if own != "" {
			what = fmt.Sprintf("for launch template %s, which is not read: %s, and the image's own volumes", own, what)
		}
		assumed = append(assumed, what)
	}
	if len(nc.Spec.CapacityReservationSelectorTerms) > 0 {
		assumed = append(assumed, "no free capacity in capacity reservations")
	}
	from := &offered{from: r, regionData: o.regionData, gone: &unavailable.State{}, left: &map[string]int{}, known: &reported.Snapshot{}}
	return from.build(o.region, nil), assumed, nil
}

// Price returns what an instance costs, in $/h; false if that isn't known. Reserved capacity is paid for already, and counts as nothing.
func (o *Offline) Price(instanceType, zone, capacityType string) (float64, bool) {
	h := o.regionData.Find(instanceType)
	if h == nil {
		return 0, false
	}
	if capacityType == karpv1.CapacityTypeReserved {
		return 0, true
	}
	return o.regionData.Price(h, zone, capacityType == karpv1.CapacityTypeSpot)
}

func subnetsOf(st *ec2nc.EC2NodeClassStatus) []network.Subnet {
	out := make([]network.Subnet, 0, len(st.Subnets))
	for _, s := range st.Subnets {
		out = append(out, network.Subnet{ID: s.ID, Zone: s.Zone, ZoneID: s.ZoneID})
	}
	slices.SortFunc(out, func(a, b network.Subnet) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// imagesOfStatus is the inverse of image.status.
func imagesOfStatus(st *ec2nc.EC2NodeClassStatus) []image {
	var out []image
	for _, ami := range st.AMIs {
		img := image{id: ami.ID, name: ami.Name, deprecated: ami.Deprecated}
		absent := false
		for _, r := range ami.Requirements {
			exists := r.Operator == corev1.NodeSelectorOpExists
			absent = absent || r.Operator == corev1.NodeSelectorOpDoesNotExist
			switch {
			case r.Key == corev1.LabelArchStable && len(r.Values) > 0:
				img.arch = r.Values[0]
			case r.Key == ec2nc.LabelInstanceGPUCount && exists:
				img.kind = bootstrap.NVIDIAKind
			case r.Key == ec2nc.LabelInstanceAcceleratorCount && exists:
				img.kind = bootstrap.NeuronKind
			}
		}
		if img.kind == bootstrap.AnyKind && absent {
			img.kind = bootstrap.NoneKind
		}
		out = append(out, img)
	}
	return out
}

// imagesOfTerms returns images for everything that the class's terms may match.
func imagesOfTerms(spec *ec2nc.EC2NodeClassSpec) (images []image, assumed string) {
	for i, a := range bootstrap.AliasImages(spec, "offline") {
		for _, kind := range a.Kinds {
			images = append(images, image{id: fmt.Sprintf("ami-%d", i), arch: a.Arch, kind: kind})
		}
	}
	if len(images) > 0 {
		return images, "images of all kinds of " + spec.AMISelectorTerms[0].Alias
	}
	return []image{{id: "ami-amd64", arch: "amd64", kind: bootstrap.AnyKind}, {id: "ami-arm64", arch: "arm64", kind: bootstrap.AnyKind}}, "images for amd64 and arm64"
}
