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

// Launch sends a launch batch's recorded request. If it is sent again with the same token, it has the result of the first time. Fewer
// instances than wanted, but at least one, is a result without an error. The errors are:
//
//	ErrInsufficientCapacity  the offerings in the result have no capacity; others may work at once
//	ErrTokenMismatch         the token belongs to another request: drop the launch batch and create a new one
//	ErrRequestStale          the request names something that doesn't exist any more: prepare a new one
//	ErrThrottled             retry later
//	ErrRefused               it will never work, however often it is repeated
//
// After any other error it is unknown whether the launch happened.
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
	return res, &failure{text: cmp.Or(res.Message, "EC2 launched no instance and gave no reason"), kind: f.sentinel()}
}

// failed returns the error for a call that failed as a whole.
func (p *Provider) failed(err error) error {
	what := ""
	if code(err) == codeNoSpotRole {
		p.exhausted.add(scope{capacityType: karpv1.CapacityTypeSpot})
		what = noSpotRole
	}
	return wrap(err, what)
}

// noSpotRole tells the user what to do about the missing role.
const noSpotRole = "spot instances can't be launched before the account has the service-linked role AWSServiceRoleForEC2Spot" +
	" (aws iam create-service-linked-role --aws-service-name spot.amazonaws.com)"

// profilePause is how long a launch waits before a new attempt when EC2 does not know the instance profile; a new profile needs about
// ten seconds in IAM. The same request can't be repeated: its token stands for the failure.
const profilePause = 2 * time.Second

// awaitProfile triggers a new lookup of the profile, which may find that it doesn't exist any more, and gives EC2 some time.
func (p *Provider) awaitProfile(ctx context.Context, nodeClass string) {
	if c := p.class(nodeClass); c != nil {
		c.recheck.Store(true)
		c.poke()
	}
	sleep(ctx, p.clock, profilePause)
}

// forgetTemplates makes sure that launch templates unknown to EC2 are created again, or looked up again if the user maintains them.
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

// launched returns the instances in a fleet's answer, sorted by id. The answer contains neither addresses nor names: use Describe for
// those.
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
			// The CNI takes addresses for the whole first interface at once.
			p.addresses.take(subnet, int64(len(got.InstanceIds))*h.ipv4PerENI)
		}
	}
	slices.SortFunc(instances, byID)
	return instances
}

// tenancyOf returns the tenancy that the launch batch asked for in this pool. If it asked for both, this is the cheaper one, which may
// be wrong until Describe returns the actual one.
func tenancyOf(w *capacity.LaunchBatch, instanceType, zone string) string {
	for _, o := range w.Offers {
		if o.InstanceType == instanceType && o.Zone == zone {
			return o.Tenancy
		}
	}
	return ""
}

// used counts instances that were launched into a reservation of the launch batch and returns the reservation's id. If several match,
// it takes the first; Describe returns the actual one.
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

// fleetErrors is the meaning of the Errors in a fleet's answer.
type fleetErrors struct {
	scopes []scope
	// reservations that are full.
	reservations []string
	// said are the distinct codes, each with its first message and its count.
	said  []fleetError
	stale bool
	// profile: EC2 does not know the instance profile; subnet: a subnet in the request has no free addresses.
	profile, subnet bool
	// insufficient, throttled and refused: there was such an error.
	insufficient, throttled, refused bool
}

type fleetError struct {
	code, message string
	times         int
}

// groupOf returns the id of the placement group that a class launches into now; empty: none.
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
			// Spot can't be used at all until the role exists.
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
			// A quota applies to the region: another zone of the same type won't help.
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
			// InvalidFleetConfiguration is the fleet's code for a type that is not offered in a zone.
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

// message returns the text for events, each code once.
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

// sentinel returns the error for an answer without instances. Lack of capacity comes first, because a new attempt can avoid it.
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
	return capacity.ErrInsufficientCapacity // neither instances nor errors: EC2 has no capacity
}

// gone returns the launch batch's offerings that are unavailable now, if the answer made any of them so.
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
