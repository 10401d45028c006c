package aws

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/reported"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/unavailable"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/zonalshift"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// offerCache is the last result of InstanceTypes for a class, and its inputs. Types that were returned are never changed: a type whose
// offerings differ is a new one that shares everything else.
type offerCache struct {
	now atomic.Pointer[offered]
	mu  sync.Mutex // serializes rebuilding
}

type offered struct {
	version uint64
	types   []*capacity.InstanceType
	unready error

	from       *resolved
	regionData *catalog.Region
	gone       *unavailable.State
	away       *zonalshift.State
	left       *map[string]int
	known      *reported.Snapshot

	of    []madeFrom            // of[i] holds the inputs of types[i]
	zones map[string]zoneLabels // the labels of offerings, by zone
}

// madeFrom holds the inputs of a type's labels and size, apart from the class.
type madeFrom struct {
	hardware *catalog.Hardware
	memory   int64
	kept     reported.Kept
	// smaller: nodes of other types with the same image have shown less memory than was assumed, and no node of this type has shown its memory.
	smaller bool
}

// InstanceTypes returns what the class can run and at what price, from memory. The same slice is returned as long as nothing changes;
// neither it nor what it points to may be changed. The error is why the class can't be used now.
func (p *Provider) InstanceTypes(nodeClass string) ([]*capacity.InstanceType, error) {
	p.expire()
	c := p.classes.get(nodeClass)
	if c == nil {
		return nil, fmt.Errorf("EC2NodeClass %s does not exist", nodeClass)
	}
	// The version is read before the data that it stands for: if data changes in between, the next call sees a newer version and rebuilds.
	version, cache := p.version.Load(), &c.offers
	if have := cache.now.Load(); have != nil && have.version == version {
		return have.types, have.unready
	}
	cache.mu.Lock()
	defer cache.mu.Unlock()
	have := cache.now.Load()
	next := p.offer(c, have)
	next.version = version
	cache.now.Store(next)
	return next.types, next.unready
}

// offer computes the result for a class and reuses the parts of the last one that are still valid.
func (p *Provider) offer(c *class, have *offered) *offered {
	next := &offered{from: c.resolved.Load(), regionData: p.catalogue.Region(), gone: p.State(), away: p.shifts.State(),
		left: p.counts.Left(), known: p.classes.reported.Now()}
	f := next.regionData
	switch {
	case next.from == nil:
		next.unready = fmt.Errorf("EC2NodeClass %s: not resolved yet", c.name)
	case next.from.unready != nil:
		next.unready = next.from.unready
	case f.Types == nil:
		next.unready = fmt.Errorf("EC2NodeClass %s: %w", c.name, p.catalogue.Problem(catalog.PartTypes))
	case f.Zones == nil:
		next.unready = fmt.Errorf("EC2NodeClass %s: %w", c.name, p.catalogue.Problem(catalog.PartZones))
	case !f.Settled:
		next.unready = fmt.Errorf("EC2NodeClass %s: prices are being read", c.name)
	}
	if next.unready != nil {
		return next
	}
	if have != nil && have.unready == nil && have.from == next.from && have.regionData == f && have.known == next.known {
		next.types, next.of, next.zones = have.types, have.of, have.zones
		if have.gone != next.gone || have.away != next.away || have.left != next.left {
			next.types = next.refresh(have)
		}
		return next
	}
	if have != nil && (have.unready != nil || have.from != next.from) {
		have = nil
	}
	next.types = next.build(p.cfg.Region, have)
	return next
}

// build creates all types of a class. It reuses unchanged ones from have, the last result for the same class; nil: there is none.
func (n *offered) build(region string, have *offered) []*capacity.InstanceType {
	r, f := n.from, n.regionData
	now := n.availability()
	if have == nil {
		have = &offered{}
	}
	if n.zones = have.zones; n.zones == nil {
		n.zones = zonesOf(r)
	}
	out := make([]*capacity.InstanceType, 0, len(f.Types))
	n.of = make([]madeFrom, 0, len(f.Types))
	node := nodeSettings(r)
	at := 0 // index into have, which has the same order
	kept, smaller := n.keptBy(), n.smaller()
	for _, h := range f.Types {
		if !accepts(r, h) {
			continue
		}
		offers := append(offersOf(r, h, f, n.zones), reservedOffers(r, h, f, n.zones)...)
		if len(offers) == 0 {
			continue
		}
		image := r.imageFor(h).id
		key := reported.Key{InstanceType: h.Name, Image: image}
		from := madeFrom{hardware: h, memory: n.known.Memory(key), kept: kept(h, key)}
		from.smaller = from.memory == 0 && smaller[image]
		t := &capacity.InstanceType{Name: h.Name, Image: image, Offers: offers, Node: node, Special: h.Metal || len(h.GPUs)+len(h.Accelerators) > 0}
		for i := range offers {
			offers[i] = now(t, offers[i])
		}
		for at < len(have.types) && have.types[at].Name < h.Name {
			at++
		}
		switch {
		case at < len(have.types) && have.of[at] == from && slices.EqualFunc(have.types[at].Offers, offers, sameOffer):
			t = have.types[at]
		case at < len(have.types) && have.of[at] == from:
			same := *have.types[at]
			same.Offers = offers
			t = &same
		default:
			t.Labels = labelsOf(h, region, r.family)
			if r.placement.ID != "" {
				t.Labels[ec2nc.LabelPlacementGroupID] = r.placement.ID
			}
			memory := from.memory
			if from.smaller {
				memory = r.settings.Least(h)
			}
			t.Capacity, t.Allocatable, t.VolumeLimits = r.settings.Size(h, memory, from.kept)
			t.CertainMemory = r.settings.Certain(h, from.memory, from.kept)
		}
		out, n.of = append(out, t), append(n.of, from)
	}
	if slices.Equal(out, have.types) {
		return have.types // callers compare slices by identity
	}
	return out
}

// nodeSettings returns what the class's own user data gives its nodes; nil: nothing. What Dovetail or the cloud determines is left out.
func nodeSettings(r *resolved) *capacity.NodeSettings {
	own := r.settings.Own
	out := &capacity.NodeSettings{Taints: own.Taints, Unread: own.Script}
	for key, value := range own.Labels {
		domain, _, _ := strings.Cut(key, "/")
		if karpv1.WellKnownLabels.Has(capacity.NormalLabel(key)) || key == corev1.LabelHostname || domain == "karpenter.sh" || strings.HasSuffix(domain, ".karpenter.sh") ||
			domain == "karpenter.k8s.aws" {
			continue
		}
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[key] = value
	}
	if len(out.Labels)+len(out.Taints) == 0 && !out.Unread {
		return nil
	}
	return out
}

// keptBy returns a function that returns the resources which kubelets on a type keep from pods, as nodes of that type have reported. If none has
// reported and the class's user data can't be read, they are computed from what nodes of other types have reported.
func (n *offered) keptBy() func(*catalog.Hardware, reported.Key) reported.Kept {
	r := n.from
	var more reported.Kept
	n.known.OfClass(r.version(), func(k reported.Key, kept reported.Kept) {
		if h := n.regionData.Find(k.InstanceType); h != nil {
			more = more.Most(r.settings.More(h, kept))
		}
	})
	return func(h *catalog.Hardware, k reported.Key) reported.Kept {
		kept := n.known.Kept(reported.ClassKey{Class: r.version(), Key: k})
		if kept == (reported.Kept{}) && more != (reported.Kept{}) && r.settings.Own.Script {
			return r.settings.With(h, more)
		}
		return kept
	}
}

// smaller returns the images with which nodes of some type have shown less memory than was assumed. Types of which no node has shown its memory count
// as having less then, too: otherwise a pod that doesn't fit is planned on another untried type, which is as small, and so on through dozens.
func (n *offered) smaller() map[string]bool {
	out := map[string]bool{}
	for i := range n.from.images {
		image := n.from.images[i].id
		n.known.Images(image, func(name string, memory int64) {
			if h := n.regionData.Find(name); h != nil && n.from.settings.Smaller(h, memory) {
				out[image] = true
			}
		})
	}
	return out
}

// sameOffer reports whether two offerings of a type are equal in every respect.
func sameOffer(a, b capacity.Offer) bool {
	return a.Zone == b.Zone && a.CapacityType == b.CapacityType && a.Price == b.Price && sameAvailability(&a, &b) && a.Tenancy == b.Tenancy &&
		a.ReservationID == b.ReservationID && maps.Equal(a.Labels, b.Labels)
}

// sameAvailability reports whether two offerings have equal values in the fields that availability sets.
func sameAvailability(a, b *capacity.Offer) bool {
	return a.Available == b.Available && a.Unsettled == b.Unsettled && a.Leaving == b.Leaving && a.Remaining == b.Remaining
}

// refresh creates new types where availability has changed and keeps the others; if nothing has changed, it keeps the slice.
func (n *offered) refresh(have *offered) []*capacity.InstanceType {
	n.of, n.zones = have.of, have.zones
	out := have.types
	now := n.availability()
	for i, t := range have.types {
		if !slices.ContainsFunc(t.Offers, func(o capacity.Offer) bool {
			next := now(t, o)
			return !sameAvailability(&o, &next)
		}) {
			continue
		}
		if &out[0] == &have.types[0] {
			out = slices.Clone(have.types)
		}
		next := *t
		next.Offers = slices.Clone(t.Offers)
		for j := range next.Offers {
			next.Offers[j] = now(t, next.Offers[j])
		}
		out[i] = &next
	}
	return out
}

// availability returns a function that sets whether an offering is available (EC2 has capacity as far as we know, the class doesn't avoid it, its
// zone has a subnet with free addresses and no zonal shift, its capacity reservation isn't full), whether that may end soon (Unsettled: EC2 refused
// it within the last half hour; Leaving: EC2 recommends to leave it), and how many instances its capacity reservation can still take (Remaining).
func (n *offered) availability() func(*capacity.InstanceType, capacity.Offer) capacity.Offer {
	zones := map[string]bool{}
	for _, s := range n.from.subnets {
		zones[s.Zone] = zones[s.Zone] || !n.gone.Full(s.ID) && !n.away.Away(s.ZoneID)
	}
	group := n.from.placement.ID
	return func(t *capacity.InstanceType, o capacity.Offer) capacity.Offer {
		o.Available, o.Remaining = zones[o.Zone] && !n.gone.Has(o.CapacityType, t.Name, o.Zone, group) && !n.gone.Avoided(n.from.class.Name, o.CapacityType, t.Name, o.Zone), 0
		o.Unsettled, o.Leaving = n.gone.Unsettled(o.CapacityType, t.Name, o.Zone, group), n.gone.Recommended(o.CapacityType, t.Name, o.Zone)
		if o.ReservationID != "" {
			o.Remaining = (*n.left)[o.ReservationID]
			v := n.from.reservation(o.ReservationID)
			o.Available = o.Available && o.Remaining > 0 && v != nil && !v.Expiring
		}
		return o
	}
}

// zoneLabels are the labels of offerings in a zone, on shared and on single-tenant hardware.
type zoneLabels struct{ shared, own map[string]string }

// zonesOf returns the zones in which the class has a subnet.
func zonesOf(r *resolved) map[string]zoneLabels {
	out := map[string]zoneLabels{}
	for _, s := range r.subnets {
		if _, ok := out[s.Zone]; ok {
			continue
		}
		l := zoneLabels{
			shared: map[string]string{ec2nc.LabelInstanceTenancy: string(ec2types.TenancyDefault)},
			own:    map[string]string{ec2nc.LabelInstanceTenancy: string(ec2types.TenancyDedicated)},
		}
		if s.ZoneID != "" {
			l.shared[ec2nc.LabelTopologyZoneID], l.own[ec2nc.LabelTopologyZoneID] = s.ZoneID, s.ZoneID
		}
		out[s.Zone] = l
	}
	return out
}

// offersOf returns the offerings of a type, apart from reserved ones, in zones with a subnet.
func offersOf(r *resolved, h *catalog.Hardware, f *catalog.Region, zones map[string]zoneLabels) []capacity.Offer {
	offers := make([]capacity.Offer, 0, 2*len(zones))
	for _, zone := range f.Zones[h.Name] {
		labels, ok := zones[zone]
		if !ok {
			continue
		}
		for _, way := range []struct {
			name string
			has  bool
			spot bool
		}{{karpv1.CapacityTypeOnDemand, h.OnDemand, false}, {karpv1.CapacityTypeSpot, h.Spot, true}} {
			if !way.has {
				continue
			}
			price, ok := f.Price(h, zone, way.spot)
			if !ok {
				if _, ok = f.Price(h, zone, false); ok {
					continue // the type is sold, but not as this capacity type
				}
				price = math.Inf(1) // an overlay may set one
			}
			offers = append(offers, capacity.Offer{Zone: zone, CapacityType: way.name, Price: price, Labels: labels.shared})
			if r.dedicated {
				offers = append(offers, capacity.Offer{Zone: zone, CapacityType: way.name, Price: price * dedicatedShare, Labels: labels.own, Tenancy: dedicated})
			}
		}
	}
	return offers
}

// accepts reports whether nodes of the class can be instances of the type.
func accepts(r *resolved, h *catalog.Hardware) bool {
	spec := &r.class.Spec
	switch {
	case r.imageFor(h) == nil:
		return false
	case slices.Contains(r.family.Unsupported, h.Family):
		return false
	case spec.CPUOptions != nil && spec.CPUOptions.NestedVirtualization != nil && *spec.CPUOptions.NestedVirtualization == "enabled" && !h.NestedVirtualization:
		return false
	case spec.ConnectionTracking != nil && !h.Nitro():
		return false
	case !r.placement.Takes(h):
		return false
	case r.family.Windows() && h.IPv4PerENI <= 1:
		return false // no pod would get an address
	}
	if len(spec.NetworkInterfaces) == 0 {
		return true
	}
	for _, n := range spec.NetworkInterfaces {
		card := slices.IndexFunc(h.Cards, func(c catalog.NetworkCard) bool { return c.Index == int64(n.NetworkCardIndex) })
		if card < 0 || h.Cards[card].Interfaces <= int64(n.DeviceIndex) {
			return false
		}
	}
	return h.ENA && r.settings.EFAOnly <= h.EFAs
}

// reservedShare makes reserved capacity, which is paid for anyway, cheaper than anything else and preserves the order of its prices.
const reservedShare = 1e-7

// reservedOffers returns the offerings of a type from reservations, in zones with a subnet.
func reservedOffers(r *resolved, h *catalog.Hardware, f *catalog.Region, zones map[string]zoneLabels) []capacity.Offer {
	var out []capacity.Offer
	for i := range r.reservations {
		v := &r.reservations[i]
		labels, ok := zones[v.Zone]
		if v.InstanceType != h.Name || !ok {
			continue
		}
		price, ok := f.Price(h, v.Zone, false)
		if !ok {
			price = catalog.Estimate(h)
		}
		all := maps.Clone(labels.shared)
		maps.Copy(all, v.Labels)
		out = append(out, capacity.Offer{Zone: v.Zone, CapacityType: karpv1.CapacityTypeReserved, Price: price * reservedShare, ReservationID: v.ID, Labels: all})
	}
	return out
}
