package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Launch sends a launch batch's recorded request. Sent again with the same token, it has the result of the first time. Instances
// that came are a result however few they are; the error is for when none came:
//
//	ErrInsufficientCapacity  the offers in the result are exhausted; other offers may work at once
//	ErrTokenMismatch         the token stands for another request: collect the launch batch, make a new one
//	ErrRequestStale          the request names something that is gone: prepare a new one
//	ErrThrottled             slower, please
//	ErrRefused               it won't work however often it is repeated
//
// Any other error leaves open whether the launch happened.
func (p *Provider) Launch(ctx context.Context, w capacity.LaunchBatch) (capacity.LaunchResult, error) {
	began := p.clock.Now()
	res, err := p.launch(ctx, w)
	countLaunch(&w, &res, p.clock.Since(began), err)
	return res, err
}

func (p *Provider) launch(ctx context.Context, w capacity.LaunchBatch) (capacity.LaunchResult, error) {
	in, err := unpack(w.Request)
	if err != nil {
		return capacity.LaunchResult{}, err
	}
	in.ClientToken = awssdk.String(w.Token)
	in.TargetCapacitySpecification.TotalTargetCapacity = awssdk.Int32(int32(len(w.Claims)))
	for i := range in.TagSpecifications {
		setTag(&in.TagSpecifications[i], batchTag(&in.TagSpecifications[i]), w.Token)
	}
	out, err := p.ec2.CreateFleet(ctx, in)
	if err != nil {
		if IsStale(err) {
			p.forgetTemplates(in, w.NodeClass)
		}
		if IsProfileUnknown(err) {
			p.awaitProfile(ctx, w.NodeClass)
		}
		return capacity.LaunchResult{}, p.failed(err)
	}
	f := readFleet(out.Errors, &w, p.groupOf(w.NodeClass))
	p.exhausted.add(f.scopes...)
	p.counts.set(func(left map[string]int) {
		for _, id := range f.reservations {
			left[id] = 0
		}
	})
	res := capacity.LaunchResult{Instances: p.launched(out, &w), Exhausted: p.gone(&w, &f), Message: f.message()}
	res.Again = f.subnet && len(res.Exhausted) < len(w.Offers)
	klog.FromContext(ctx).V(2).Info("Launched fleet", "launchBatch", w.Token, "fleet", awssdk.ToString(out.FleetId), "wanted", len(w.Claims),
		"instances", len(res.Instances), "errors", res.Message)
	if len(res.Instances) > 0 {
		return res, nil
	}
	if f.stale {
		p.forgetTemplates(in, w.NodeClass)
	}
	if f.profile {
		p.awaitProfile(ctx, w.NodeClass)
	}
	return res, &failure{text: cmp.Or(res.Message, "EC2 gave no instance and said no reason"), kind: f.sentinel()}
}

// failed is for calls that were refused as a whole.
func (p *Provider) failed(err error) error {
	what := ""
	if code(err) == codeNoSpotRole {
		p.exhausted.add(scope{capacityType: karpv1.CapacityTypeSpot})
		what = noSpotRole
	}
	return wrap(err, what)
}

// noSpotRole says what to do about it.
const noSpotRole = "spot instances can't be launched before the account has the service-linked role AWSServiceRoleForEC2Spot" +
	" (aws iam create-service-linked-role --aws-service-name spot.amazonaws.com)"

// profilePause is what a new attempt waits for a profile that EC2 does not know; IAM needs some ten seconds for a new one.
// The same request won't do: its token stands for its failure.
const profilePause = 2 * time.Second

// awaitProfile has the profile looked up again, which may find that it is gone for good, and gives EC2 time.
func (p *Provider) awaitProfile(ctx context.Context, nodeClass string) {
	if c := p.class(nodeClass); c != nil {
		c.recheck.Store(true)
		c.poke()
	}
	sleep(ctx, p.clock, profilePause)
}

// forgetTemplates has what EC2 does not know made anew, or, where it is the user's own, looked up again.
func (p *Provider) forgetTemplates(in *ec2.CreateFleetInput, nodeClass string) {
	if c := p.class(nodeClass); c != nil && ownTemplate(c.current()) != "" {
		c.recheck.Store(true)
		c.poke()
	}
	for _, c := range in.LaunchTemplateConfigs {
		if s := c.LaunchTemplateSpecification; s != nil {
			p.templates.forget(awssdk.ToString(s.LaunchTemplateName))
		}
	}
}

// batchTag is the name of the launch batch's tag. A request that was recorded under the old name keeps it: EC2 takes another tag for
// another request, refuses it under the same token, and what the first one launched would be launched again under the next.
func batchTag(s *ec2types.TagSpecification) string {
	for _, name := range objects.FormerNames(objects.TagLaunchBatch) {
		if slices.ContainsFunc(s.Tags, func(t ec2types.Tag) bool { return awssdk.ToString(t.Key) == name }) {
			return name
		}
	}
	return objects.TagLaunchBatch
}

func setTag(s *ec2types.TagSpecification, key, value string) {
	for i := range s.Tags {
		if awssdk.ToString(s.Tags[i].Key) == key {
			s.Tags[i].Value = awssdk.String(value)
			return
		}
	}
	s.Tags = append(s.Tags, ec2types.Tag{Key: awssdk.String(key), Value: awssdk.String(value)})
}

// launched are the instances of a fleet's answer, by id. It has neither addresses nor names: describe them.
func (p *Provider) launched(out *ec2.CreateFleetOutput, w *capacity.LaunchBatch) []capacity.Instance {
	var instances []capacity.Instance
	f := p.catalogue.now.Load()
	for _, got := range out.Instances {
		i := capacity.Instance{
			InstanceType: string(got.InstanceType), CapacityType: w.CapacityType, State: capacity.InstancePending, LaunchBatch: w.Token, LaunchedAt: p.clock.Now(),
		}
		subnet := ""
		if lt := got.LaunchTemplateAndOverrides; lt != nil && lt.Overrides != nil {
			i.Zone, subnet = awssdk.ToString(lt.Overrides.AvailabilityZone), awssdk.ToString(lt.Overrides.SubnetId)
			if i.InstanceType == "" {
				i.InstanceType = string(lt.Overrides.InstanceType)
			}
		}
		if i.Zone == "" {
			i.Zone = p.zoneOf(w.NodeClass, subnet)
		}
		if got.Lifecycle == ec2types.InstanceLifecycleSpot {
			i.CapacityType = karpv1.CapacityTypeSpot
		}
		i.Tenancy = tenancyOf(w, i.InstanceType, i.Zone)
		if w.CapacityType == karpv1.CapacityTypeReserved {
			i.ReservationID = p.used(w, &i, len(got.InstanceIds))
		}
		for _, id := range got.InstanceIds {
			i.ID, i.ProviderID = id, providerID(i.Zone, id)
			instances = append(instances, i)
		}
		if h := f.find(i.InstanceType); h != nil {
			// The CNI fills the first interface with addresses at once.
			p.addresses.take(subnet, int64(len(got.InstanceIds))*h.ipv4PerENI)
		}
	}
	slices.SortFunc(instances, byID)
	return instances
}

// tenancyOf is what the launch batch asked for there; where it asked for both, the cheaper comes first, and Describe knows.
func tenancyOf(w *capacity.LaunchBatch, instanceType, zone string) string {
	for _, o := range w.Offers {
		if o.InstanceType == instanceType && o.Zone == zone {
			return o.Tenancy
		}
	}
	return ""
}

// used counts instances that went into a reservation of the launch batch, and names it. Of several that it may have been it takes
// the first; Describe knows.
func (p *Provider) used(w *capacity.LaunchBatch, i *capacity.Instance, n int) string {
	for _, o := range w.Offers {
		if o.ReservationID != "" && o.InstanceType == i.InstanceType && o.Zone == i.Zone {
			p.counts.set(func(left map[string]int) { left[o.ReservationID] = max(0, left[o.ReservationID]-n) })
			return o.ReservationID
		}
	}
	return ""
}

func (p *Provider) zoneOf(nodeClass, id string) string {
	if c := p.class(nodeClass); c != nil {
		if r := c.resolved.Load(); r != nil {
			for _, s := range r.subnets {
				if s.id == id {
					return s.zone
				}
			}
		}
	}
	return ""
}

// fleetErrors is what the Errors of a fleet's answer mean.
type fleetErrors struct {
	scopes []scope
	// reservations that take no more.
	reservations []string
	// said are the distinct codes with the message first seen and how often.
	said  []fleetError
	stale bool
	// profile: EC2 does not know the instance profile; subnet: one that was asked for has no addresses.
	profile, subnet bool
	// insufficient, throttled and refused: there was such an error.
	insufficient, throttled, refused bool
}

type fleetError struct {
	code, message string
	times         int
}

// groupOf is the placement group that a class launches into now; empty: none.
func (p *Provider) groupOf(nodeClass string) string {
	if c := p.class(nodeClass); c != nil {
		if r := c.resolved.Load(); r != nil {
			return r.placement.id
		}
	}
	return ""
}

func readFleet(errs []ec2types.CreateFleetError, w *capacity.LaunchBatch, group string) fleetErrors {
	var f fleetErrors
	for _, e := range errs {
		c := awssdk.ToString(e.ErrorCode)
		f.say(c, awssdk.ToString(e.ErrorMessage))
		fleetErrorsTotal.WithLabelValues(w.CapacityType, c).Inc()
		pool := scope{capacityType: w.CapacityType, group: group}
		subnet := ""
		if lt := e.LaunchTemplateAndOverrides; lt != nil && lt.Overrides != nil {
			pool.instanceType, pool.zone = string(lt.Overrides.InstanceType), awssdk.ToString(lt.Overrides.AvailabilityZone)
			subnet = awssdk.ToString(lt.Overrides.SubnetId)
		}
		switch {
		case c == codeNoSpotRole:
			// No spot at all until somebody makes the role.
			f.insufficient = true
			f.scopes = append(f.scopes, scope{capacityType: karpv1.CapacityTypeSpot})
		case groupsZone(c, awssdk.ToString(e.ErrorMessage)):
			f.insufficient = true
			if pool.zone != "" && group != "" {
				f.scopes = append(f.scopes, scope{zone: pool.zone, group: group})
			}
		case c == codeNoAddresses:
			f.insufficient = true
			if subnet != "" {
				f.subnet = true
				f.scopes = append(f.scopes, scope{subnet: subnet})
			}
		case c == codeSpotQuota, c == codeVCPUQuota, c == codeInstanceQuota:
			// A quota is the region's: another zone of the same type won't help.
			f.insufficient = true
			pool.group = ""
			if pool.zone = ""; pool.instanceType != "" {
				f.scopes = append(f.scopes, pool)
			}
		case c == codeReservationExceeded:
			f.insufficient = true
			for _, o := range w.Offers {
				if o.ReservationID != "" && o.InstanceType == pool.instanceType && o.Zone == pool.zone {
					f.reservations = append(f.reservations, o.ReservationID)
				}
			}
		case slices.Contains(capacityCodes, c), c == "InvalidFleetConfiguration":
			// The latter is how a fleet says that a type is not to be had in a zone.
			f.insufficient = true
			if pool.instanceType != "" && pool.zone != "" {
				f.scopes = append(f.scopes, pool)
			}
		case profileUnknown(c, awssdk.ToString(e.ErrorMessage)):
			f.profile = true
		case throttleCode(c):
			f.throttled = true
		case staleCode(c):
			f.stale = true
		default:
			f.refused = true
		}
	}
	return f
}

func (f *fleetErrors) say(c, message string) {
	for i := range f.said {
		if f.said[i].code == c {
			f.said[i].times++
			return
		}
	}
	f.said = append(f.said, fleetError{c, message, 1})
}

// message is for events: each code once.
func (f *fleetErrors) message() string {
	var parts []string
	for _, s := range f.said {
		part := s.code + ": " + plain(s.message)
		if s.code == codeNoSpotRole {
			part = noSpotRole + ": " + part
		}
		if s.times > 1 {
			part += fmt.Sprintf(" (%d times)", s.times)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// sentinel is what the errors come to when no instance came. Capacity goes first: it is what a new attempt can do something
// about.
func (f *fleetErrors) sentinel() error {
	switch {
	case f.insufficient:
		return capacity.ErrInsufficientCapacity
	case f.throttled:
		return capacity.ErrThrottled
	case f.stale, f.profile:
		return capacity.ErrRequestStale
	case f.refused:
		return capacity.ErrRefused
	}
	return capacity.ErrInsufficientCapacity // neither instances nor errors: EC2 has none
}

// gone are the launch batch's offers that can't be had now, if the answer says so of any.
func (p *Provider) gone(w *capacity.LaunchBatch, f *fleetErrors) []capacity.OfferKey {
	if len(f.scopes) == 0 && len(f.reservations) == 0 {
		return nil
	}
	left := *p.counts.now.Load()
	x := p.exhausted.now.Load()
	var r *resolved
	if c := p.class(w.NodeClass); c != nil {
		r = c.resolved.Load()
	}
	group := p.groupOf(w.NodeClass)
	var out []capacity.OfferKey
	for _, o := range w.Offers {
		if x.has(o.CapacityType, o.InstanceType, o.Zone, group) || r != nil && !r.hasAddresses(o.Zone, x) || o.ReservationID != "" && left[o.ReservationID] == 0 {
			out = append(out, o)
		}
	}
	return out
}
