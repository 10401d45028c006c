package aws

import (
	"cmp"
	"context"
	"slices"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/unavailable"
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
func (l *launcher) Launch(ctx context.Context, w capacity.LaunchBatch) (capacity.LaunchResult, error) {
	began := l.clock.Now()
	res, err := l.launch(ctx, w)
	countLaunch(&w, &res, l.clock.Since(began), err)
	return res, err
}

func (l *launcher) launch(ctx context.Context, w capacity.LaunchBatch) (capacity.LaunchResult, error) {
	in, err := unpack(w.Request)
	if err != nil {
		return capacity.LaunchResult{}, err
	}
	in.ClientToken = awssdk.String(w.Token)
	in.TargetCapacitySpecification.TotalTargetCapacity = awssdk.Int32(int32(len(w.Claims)))
	for i := range in.TagSpecifications {
		setTag(&in.TagSpecifications[i], batchTag(&in.TagSpecifications[i]), w.Token)
	}
	out, err := l.ec2.CreateFleet(ctx, in)
	if err != nil {
		if sdk.IsStale(err) {
			l.forgetTemplates(ctx, in, w.NodeClass, sdk.IsImageUnknown(err))
		}
		if sdk.IsProfileUnknown(err) {
			l.awaitProfile(ctx, w.NodeClass)
		}
		return capacity.LaunchResult{}, l.callFailed(err)
	}
	f := readFleet(out.Errors, &w, l.groupOf(w.NodeClass))
	l.exhausted.Add(f.scopes...)
	l.exhausted.Incompatible(w.NodeClass, f.incompatible...)
	l.counts.Update(func(left map[string]int) {
		for _, id := range f.reservations {
			left[id] = 0
		}
	})
	res := capacity.LaunchResult{Instances: l.launched(out, &w), Exhausted: l.gone(&w, &f), Message: f.message()}
	res.Again = f.subnet && len(res.Exhausted) < len(w.Offers)
	klog.FromContext(ctx).V(2).Info("Launched fleet", "launchBatch", w.Token, "fleet", awssdk.ToString(out.FleetId), "wanted", len(w.Claims),
		"instances", len(res.Instances), "errors", res.Message)
	if len(res.Instances) > 0 {
		if c := l.classes.get(w.NodeClass); c != nil && f.image {
			c.imagesAgain() // instances with an image of another architecture were launched all the same
		}
		return res, nil
	}
	if f.stale {
		l.forgetTemplates(ctx, in, w.NodeClass, f.image)
	}
	if f.profile {
		l.awaitProfile(ctx, w.NodeClass)
	}
	return res, sdk.Failed(cmp.Or(res.Message, "EC2 launched no instance and gave no reason"), f.sentinel())
}

// callFailed returns the error for a call that failed as a whole.
func (l *launcher) callFailed(err error) error {
	what := ""
	if sdk.Code(err) == sdk.CodeNoSpotRole {
		l.exhausted.Add(unavailable.Scope{CapacityType: karpv1.CapacityTypeSpot})
		what = noSpotRole
	}
	return sdk.Wrap(err, what)
}

// profilePause is how long a launch waits before a new attempt when EC2 does not know the instance profile; a new profile needs about
// ten seconds in IAM. The same request can't be repeated: its token stands for the failure.
const profilePause = 2 * time.Second

// awaitProfile triggers a new lookup of the profile, which may find that it doesn't exist any more, and gives EC2 some time.
func (l *launcher) awaitProfile(ctx context.Context, nodeClass string) {
	if c := l.classes.get(nodeClass); c != nil {
		c.recheck.Store(true)
		c.poke()
	}
	sdk.Sleep(ctx, l.clock, profilePause)
}

// imagesPause is how long at most a launch waits until the images of its class have been looked up again.
const imagesPause = 10 * time.Second

// forgetTemplates makes sure that launch templates unknown to EC2 are created again, or looked up again if the user maintains them. If EC2
// doesn't know an image any more, it waits until the class's images have been looked up again: templates that are created before that would name
// the missing image again.
func (l *launcher) forgetTemplates(ctx context.Context, in *ec2.CreateFleetInput, nodeClass string, image bool) {
	if c := l.classes.get(nodeClass); c != nil && (image || ownTemplate(c.current()) != "") {
		defer l.await(ctx, c.imagesAgain())
	}
	for _, c := range in.LaunchTemplateConfigs {
		if s := c.LaunchTemplateSpecification; s != nil {
			l.templates.Forget(awssdk.ToString(s.LaunchTemplateName))
		}
	}
}

// await waits until the images have been looked up, or for imagesPause.
func (l *launcher) await(ctx context.Context, lookedUp <-chan struct{}) {
	timer := l.clock.NewTimer(imagesPause)
	defer timer.Stop()
	select {
	case <-lookedUp:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// batchTag returns the name of the launch batch's tag. A request recorded with the tag's old name must be repeated with it: under the same token EC2
// refuses a request with other tags, and under a new token it would launch the same instances again.
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
func (l *launcher) launched(out *ec2.CreateFleetOutput, w *capacity.LaunchBatch) []capacity.Instance {
	var instances []capacity.Instance
	f := l.catalogue.Region()
	for _, got := range out.Instances {
		i := capacity.Instance{
			InstanceType: string(got.InstanceType), CapacityType: w.CapacityType, State: capacity.InstancePending, LaunchBatch: w.Token, LaunchedAt: l.clock.Now(),
		}
		subnet := ""
		if lt := got.LaunchTemplateAndOverrides; lt != nil && lt.Overrides != nil {
			i.Zone, subnet = awssdk.ToString(lt.Overrides.AvailabilityZone), awssdk.ToString(lt.Overrides.SubnetId)
			if i.InstanceType == "" {
				i.InstanceType = string(lt.Overrides.InstanceType)
			}
		}
		if i.Zone == "" {
			i.Zone = l.zoneOf(w.NodeClass, subnet)
		}
		if got.Lifecycle == ec2types.InstanceLifecycleSpot {
			i.CapacityType = karpv1.CapacityTypeSpot
		}
		i.Tenancy = tenancyOf(w, i.InstanceType, i.Zone)
		if r := l.classes.resolved(w.NodeClass); r != nil {
			i.Annotations = ofProfile(r.profile)
		}
		if w.CapacityType == karpv1.CapacityTypeReserved {
			i.ReservationID = l.used(w, &i, len(got.InstanceIds))
		}
		for _, id := range got.InstanceIds {
			i.ID, i.ProviderID = id, providerID(i.Zone, id)
			instances = append(instances, i)
		}
		if h := f.Find(i.InstanceType); h != nil {
			// The CNI takes addresses for the whole first interface at once.
			l.addresses.Take(subnet, int64(len(got.InstanceIds))*h.IPv4PerENI)
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
func (l *launcher) used(w *capacity.LaunchBatch, i *capacity.Instance, n int) string {
	for _, o := range w.Offers {
		if o.ReservationID != "" && o.InstanceType == i.InstanceType && o.Zone == i.Zone {
			l.counts.Update(func(left map[string]int) { left[o.ReservationID] = max(0, left[o.ReservationID]-n) })
			return o.ReservationID
		}
	}
	return ""
}

func (l *launcher) zoneOf(nodeClass, id string) string {
	if r := l.classes.resolved(nodeClass); r != nil {
		for _, s := range r.subnets {
			if s.ID == id {
				return s.Zone
			}
		}
	}
	return ""
}

// groupOf returns the id of the placement group that a class launches into now; empty: none.
func (l *launcher) groupOf(nodeClass string) string {
	if r := l.classes.resolved(nodeClass); r != nil {
		return r.placement.ID
	}
	return ""
}

// gone returns the launch batch's offerings that are unavailable now, if EC2's answer made any offering unavailable.
func (l *launcher) gone(w *capacity.LaunchBatch, f *fleetErrors) []capacity.OfferKey {
	if len(f.scopes)+len(f.reservations)+len(f.incompatible) == 0 {
		return nil
	}
	left := *l.counts.Left()
	x := l.exhausted.State()
	r := l.classes.resolved(w.NodeClass)
	group := l.groupOf(w.NodeClass)
	var out []capacity.OfferKey
	for _, o := range w.Offers {
		if x.Has(o.CapacityType, o.InstanceType, o.Zone, group) || slices.Contains(f.incompatible, o.InstanceType) || r != nil && !hasAddresses(r, o.Zone, x) || o.ReservationID != "" && left[o.ReservationID] == 0 {
			out = append(out, o)
		}
	}
	return out
}

// hasAddresses reports whether a subnet of the class in the zone has free addresses, as far as we know.
func hasAddresses(r *resolved, zone string, gone *unavailable.State) bool {
	return slices.ContainsFunc(r.subnets, func(s network.Subnet) bool { return s.Zone == zone && !gone.Full(s.ID) })
}
