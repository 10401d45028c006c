package ec2

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// fleet is a CreateFleet request of type instant.
type fleet struct {
	capacityType string
	strategy     string
	total, min   int
	choices      []*choice
	// tags by resource type, in addition to those of the template.
	tags map[string]map[string]string
	// market is the market option that the launch templates must have for this fleet; empty for on-demand and spot.
	market string
	// asker asks whether the launch is allowed.
	asker *asker
}

// choice is one override of one launch template: a pool to launch into, and how.
type choice struct {
	config   templateRef
	override overrideItem
	data     *launchData
	typ      *catalog.Type
	subnet   *subnet
	pool     pool
	price    float64
	depth    int
	priority float64
	order    int
	taken    int
	// covered are the reservations that taken instances run in, one entry per instance; all other taken instances use the pool.
	covered []*reservation
	failure *apiError
}

type templateRef struct {
	ID      string `xml:"launchTemplateId,omitempty"`
	Name    string `xml:"launchTemplateName,omitempty"`
	Version string `xml:"version,omitempty"`
}

type overrideItem struct {
	Type     string `xml:"instanceType,omitempty"`
	Subnet   string `xml:"subnetId,omitempty"`
	Zone     string `xml:"availabilityZone,omitempty"`
	Image    string `xml:"imageId,omitempty"`
	Priority string `xml:"priority,omitempty"`
}

type templateAndOverrides struct {
	Template  templateRef  `xml:"launchTemplateSpecification"`
	Overrides overrideItem `xml:"overrides"`
}

type fleetInstances struct {
	From      templateAndOverrides `xml:"launchTemplateAndOverrides"`
	Lifecycle string               `xml:"lifecycle"`
	IDs       []string             `xml:"instanceIds>item"`
	Type      string               `xml:"instanceType"`
}

type fleetError struct {
	From      templateAndOverrides `xml:"launchTemplateAndOverrides"`
	Lifecycle string               `xml:"lifecycle"`
	Code      string               `xml:"errorCode"`
	Message   string               `xml:"errorMessage"`
}

type fleetAnswer struct {
	ID        string           `xml:"fleetId"`
	Errors    []fleetError     `xml:"errorSet>item"`
	Instances []fleetInstances `xml:"fleetInstanceSet>item"`
}

// createFleetSlowly is createFleet with the latency of the real call.
func (s *Sim) createFleetSlowly(ctx context.Context, r *Request) (answer any, err error) {
	if l := s.cfg.FleetLatency; l > 0 {
		s.mu.Lock()
		d := s.cfg.scaled(between(s.world.draw("fleet", r.Token, r.id), l/2, l*3/2))
		s.mu.Unlock()
		s.sleep(ctx, d)
	}
	s.with(func(w *world) { answer, err = w.createFleet(r) })
	return answer, err
}

// createFleet launches an instant fleet:
//  1. read the request and every pool it names,
//  2. sort the pools by the allocation strategy,
//  3. take capacity from each until the target is reached; each failure is an entry of Errors,
//  4. launch, or give everything back if it is less than the minimum.
func (w *world) createFleet(r *Request) (any, error) {
	return w.once(r, func() (any, error) {
		f, err := w.parseFleet(r)
		if err != nil {
			return nil, err
		}
		if r.params.bool("DryRun") {
			return nil, f.dryRun()
		}
		w.order(f)
		got := w.allocate(f)
		return w.fulfil(r, f, got), nil
	})
}

// dryRun returns the error that a fleet gets that isn't to be launched. Only the permission for CreateFleet counts (see permitLaunch): what
// the choices would fail with otherwise is an entry of Errors, and no error of the call.
func (f *fleet) dryRun() *apiError {
	for _, c := range f.choices {
		if c.failure != nil && c.failure.Code == "UnauthorizedOperation" {
			return c.failure
		}
	}
	return dryRun()
}

func (w *world) parseFleet(r *Request) (*fleet, error) {
	p := r.params
	if t := p.str("Type"); t != "instant" {
		return nil, failf("UnsupportedOperation", "The simulator launches fleets of type instant only, not %q", t)
	}
	if err := p.checkTagSpecifications(append([]string{"fleet"}, taggedAtLaunch...)...); err != nil {
		return nil, err
	}
	f := &fleet{asker: w.asker(r), tags: map[string]map[string]string{}, capacityType: p.str("TargetCapacitySpecification.DefaultTargetCapacityType")}
	for _, kind := range taggedAtLaunch {
		f.tags[kind] = p.tagsFor(kind)
	}
	switch f.capacityType {
	case "":
		f.capacityType = onDemand
	case capacityBlock:
		f.capacityType, f.market = onDemand, capacityBlock
	case "reserved-capacity":
		if !slices.Contains(p.strs("ReservedCapacityOptions.ReservationType"), interruptible) {
			return nil, missing("ReservedCapacityOptions.ReservationTypes")
		}
		f.capacityType, f.market = onDemand, interruptible
	}
	var err error
	if f.total, err = p.number("TargetCapacitySpecification.TotalTargetCapacity", 0); err != nil {
		return nil, err
	}
	if f.total < 1 || f.total > 10000 {
		return nil, invalidValue("TotalTargetCapacity", fmt.Sprint(f.total), "It must be at least 1 and at most 10000.")
	}
	options := "OnDemandOptions"
	switch f.capacityType {
	case onDemand:
		f.strategy = "lowest-price"
	case spot:
		options, f.strategy = "SpotOptions", "lowest-price"
	default:
		return nil, invalidValue("DefaultTargetCapacityType", f.capacityType, "")
	}
	if s := p.str(options + ".AllocationStrategy"); s != "" {
		f.strategy = s
	}
	if f.min, err = p.number(options+".MinTargetCapacity", 0); err != nil {
		return nil, err
	}
	if p.bool(options+".SingleInstanceType") || p.bool(options+".SingleAvailabilityZone") {
		return nil, failf("UnsupportedOperation", "The simulator has no single instance type or availability zone fleets")
	}
	configs := p.list("LaunchTemplateConfigs")
	switch {
	case len(configs) == 0:
		return nil, missing("LaunchTemplateConfigs")
	case len(configs) > 50:
		return nil, failf("InvalidParameterValue", "The number of launch template configs exceeds the limit of 50")
	}
	for _, c := range configs {
		spec := c.sub("LaunchTemplateSpecification")
		t, err := w.template(spec.str("LaunchTemplateId"), spec.str("LaunchTemplateName"), spec.str("Version"))
		if err != nil {
			return nil, err
		}
		ref := templateRef{t.id, t.name, "1"}
		overrides := c.list("Overrides")
		if len(overrides) == 0 {
			overrides = []*params{nil}
		}
		for _, o := range overrides {
			choice, err := w.parseChoice(f, ref, t, o)
			if err != nil {
				return nil, err
			}
			choice.order = len(f.choices)
			f.choices = append(f.choices, choice)
		}
	}
	return f, nil
}

// parseChoice reads an override. A fault of this pool alone becomes the choice's failure, which a fleet reports in Errors.
func (w *world) parseChoice(f *fleet, ref templateRef, t *template, p *params) (*choice, error) {
	o := overrideItem{Type: p.str("InstanceType"), Subnet: p.str("SubnetId"), Zone: p.str("AvailabilityZone"), Image: p.str("ImageId"), Priority: p.str("Priority")}
	if weight := p.str("WeightedCapacity"); weight != "" && weight != "1" {
		return nil, failf("UnsupportedOperation", "The simulator has no weighted capacity")
	}
	if p.has("InstanceRequirements") {
		return nil, failf("UnsupportedOperation", "The simulator has no attribute-based instance type selection")
	}
	c := &choice{config: ref, override: o, priority: 1e9}
	if o.Priority != "" {
		if _, err := fmt.Sscan(o.Priority, &c.priority); err != nil {
			return nil, invalidValue("Priority", o.Priority, "not a number")
		}
	}
	c.data = (&launchData{image: o.Image, typ: o.Type, subnet: o.Subnet}).over(t.data)
	c.failure = w.resolve(c, f)
	return c, nil
}

// resolve looks up what the choice names, and returns an error if the choice can't be launched.
func (w *world) resolve(c *choice, f *fleet) *apiError {
	d := c.data
	c.pool = pool{d.typ, c.override.Zone, f.capacityType}
	switch {
	case d.subnet != "":
		if c.subnet = w.network.subnet(d.subnet); c.subnet == nil {
			return failf("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", d.subnet)
		}
	default:
		i := slices.IndexFunc(w.network.subnets, func(s *subnet) bool { return c.override.Zone == "" || s.zone == c.override.Zone })
		if i < 0 {
			return failf("InvalidParameterValue", "Invalid availability zone: [%s]", c.override.Zone)
		}
		c.subnet = w.network.subnets[i]
	}
	c.pool.Zone = c.subnet.zone
	if err := w.permitLaunch(f.asker, c, f); err != nil {
		return err
	}
	if c.override.Zone != "" && c.override.Zone != c.subnet.zone {
		return failf("InvalidParameterValue", "The subnet %s is not in the availability zone %s", c.subnet.id, c.override.Zone)
	}
	if c.typ = w.cfg.Catalog.Type(d.typ); c.typ == nil {
		return failf("InvalidParameterValue", "Invalid value '%s' for InstanceType.", d.typ)
	}
	if !c.typ.OfferedIn(c.subnet.zone) {
		return failf("InvalidFleetConfiguration", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", d.typ, c.subnet.zone)
	}
	if !c.typ.Sells(f.capacityType) {
		return failf("Unsupported", "The requested configuration is currently not supported: %s is not sold as %s.", d.typ, f.capacityType)
	}
	c.price = math.Inf(1) // pools with unknown prices are tried last
	if p, known := w.price(c.typ, c.subnet.zone, f.capacityType); known {
		c.price = p
	}
	if f.capacityType == onDemand && len(f.tags["spot-instances-request"])+len(d.tags["spot-instances-request"]) > 0 {
		return failf("InvalidParameterValue", "'spot-instances-request' is not a valid taggable resource type for this operation.")
	}
	if d.market != spot && d.market != f.market {
		return failf("InvalidFleetConfiguration", "The fleet buys '%s', the launch template '%s'.", f.market, d.market)
	}
	if f.capacityType == spot && !w.spotRole {
		return failf("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.")
	}
	for _, kind := range taggedAtLaunch {
		if err := tooManyTags(merged(d.tags[kind], f.tags[kind])); err != nil {
			return err
		}
	}
	return cmp.Or(d.checkShownTags(f.tags["instance"]), w.check(d, c.typ))
}

// check returns an error if an instance can't be made from the launch data.
func (w *world) check(d *launchData, t *catalog.Type) *apiError {
	im := w.image(d.image)
	switch {
	case d.image == "":
		return missing("ImageId")
	case im == nil:
		return failf("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", d.image)
	case !slices.Contains(t.Arch, im.arch):
		return failf("InvalidParameterValue", "The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI.", t.Arch[0], im.arch)
	case d.profile != "" && (w.profiles[d.profile] == nil || w.profiles[d.profile].known.After(w.now)):
		return failf("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", d.profile)
	}
	for _, g := range d.groups {
		if w.network.group(g) == nil {
			return failf("InvalidGroup.NotFound", "The security group '%s' does not exist", g)
		}
	}
	if d.reservation != "" && w.reservation(d.reservation) == nil {
		return failf("InvalidCapacityReservationId.NotFound", "The capacity reservation ID '%s' does not exist", d.reservation)
	}
	if err := cmp.Or(w.checkPlacement(d.placement, t), d.checkOptions(), d.checkVolumes(im)); err != nil {
		return err
	}
	efas := 0
	for _, n := range d.interfaces {
		if n.Card >= t.NetworkCards {
			return failf("InvalidNetworkCardIndex", "The instance type %s has no network card %d", t.Name, n.Card)
		}
		if n.Type != "interface" {
			efas++
		}
		if n.IPv6Addresses+n.IPv6Prefixes > 0 && !w.cfg.IPv6 {
			return failf("InvalidParameterValue", "The subnet has no IPv6 CIDR block")
		}
	}
	if efas > t.MaxEFA {
		return failf("InvalidParameterCombination", "The instance type %s takes at most %d EFA interfaces", t.Name, t.MaxEFA)
	}
	return nil
}
