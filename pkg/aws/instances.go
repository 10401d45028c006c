package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/batcher"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/drift"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/unavailable"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// instances describes, tags and terminates instances.
type instances struct {
	ec2       sdk.InstanceAPI
	classes   *classes
	cluster   *bootstrap.ClusterReader
	exhausted *unavailable.Memory
	owner     ownership.Owner
	taken     *takenBack
	seen      *drift.Seen // what EC2 has last shown of the instances' properties that drift compares
	describes *batcher.Batcher[string, described]
	ends      *batcher.Batcher[string, struct{}]
	turns     atomic.Uint32 // which instance of a refused batch is tried alone next
}

func newInstances(api sdk.InstanceAPI, c clock.WithTicker, s *classes, j *bootstrap.ClusterReader, e *unavailable.Memory, o ownership.Owner) *instances {
	l := &instances{ec2: api, classes: s, cluster: j, exhausted: e, owner: o, taken: &takenBack{clock: c, seen: map[string]time.Time{}}, seen: &drift.Seen{}}
	l.describes, l.ends = batcher.New(c, l.describeAll), batcher.New(c, l.terminateAll)
	return l
}

// described is the answer for an instance that EC2 may not know.
type described struct {
	instance capacity.Instance
	found    bool
}

// Describe returns the instance as EC2 shows it now. Calls at about the same time share a request.
func (l *instances) Describe(ctx context.Context, id string) (capacity.Instance, error) {
	d, err := l.describes.Do(ctx, id)
	if err != nil {
		return capacity.Instance{}, sdk.Wrap(err, "describing instance "+id)
	}
	if !d.found {
		return capacity.Instance{}, fmt.Errorf("describing instance %s: %w", id, capacity.ErrInstanceNotFound)
	}
	return d.instance, nil
}

// describeAll returns the answers for a batch. The ids are in a filter instead of the list of ids, because one id that EC2 does not
// know fails the whole request if it is in the list.
func (l *instances) describeAll(ctx context.Context, ids []string) map[string]batcher.Answer[described] {
	out := make(map[string]batcher.Answer[described], len(ids))
	for chunk := range slices.Chunk(ids, sdk.MaxFilterValues) {
		found, err := l.describe(ctx, sdk.Filter("instance-id", chunk...))
		if err != nil {
			for _, id := range chunk {
				out[id] = batcher.Answer[described]{Err: err}
			}
			continue
		}
		for _, i := range found {
			out[i.ID] = batcher.Answer[described]{Value: described{i, true}}
		}
	}
	return out
}

// FindBatch returns the live instances of a launch batch, sorted by id. The name of the tag with the token has changed between versions; a batch's
// instances have it under the name of the version that prepared the request. A filter takes only one tag name, so the names are tried in turn.
func (l *instances) FindBatch(ctx context.Context, token string) ([]capacity.Instance, error) {
	for _, name := range append([]string{objects.TagLaunchBatch}, objects.FormerNames(objects.TagLaunchBatch)...) {
		found, err := l.owned(ctx, func(i *capacity.Instance) bool { return i.LaunchBatch == token }, sdk.Filter("tag:"+name, token), live)
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

// FindClaim returns the live instances tagged with a NodeClaim's name, sorted by id. Dovetail sets the tag once it has created the Node, Karpenter
// once the Node has registered.
func (l *instances) FindClaim(ctx context.Context, name string) ([]capacity.Instance, error) {
	return l.owned(ctx, func(i *capacity.Instance) bool { return i.Claim == name }, sdk.Filter("tag:"+ec2nc.NodeClaimTagKey, name), live)
}

// List returns the instances of all nodes of this cluster that are not terminated, sorted by id.
func (l *instances) List(ctx context.Context) ([]capacity.Instance, error) {
	all, err := l.owned(ctx, func(i *capacity.Instance) bool { _, ok := i.Tags[ec2nc.NodePoolTagKey]; return ok }, sdk.Filter("tag-key", ec2nc.NodePoolTagKey), notTerminated)
	if err == nil {
		listed := make(map[string]bool, len(all))
		for i := range all {
			listed[all[i].ID] = true
		}
		l.seen.Keep(listed)
	}
	return all, err
}

// owned returns the instances of this Dovetail that the filters select and for which is returns true. Some of them will be terminated because of
// this answer, so the tags that EC2 returns are checked again instead of trusting the filters alone. Instances managed by a service, such as
// EKS Auto Mode, belong to the service whatever their tags, and are left out.
func (l *instances) owned(ctx context.Context, is func(*capacity.Instance) bool, filters ...ec2types.Filter) ([]capacity.Instance, error) {
	filters = append(filters, l.owner.Filter())
	if l.owner.ManagedBy != "" {
		filters = append(filters, sdk.Filter("tag:"+objects.TagManagedBy, l.owner.ManagedBy))
	}
	found, err := l.describe(ctx, filters...)
	return slices.DeleteFunc(found, func(i capacity.Instance) bool {
		return i.Tags[l.owner.Tag()] != ownership.Owned || i.Operator != "" || !l.owner.Own(i.Tags) || !is(&i)
	}), sdk.Wrap(err, "describing instances")
}

// Instance states. Live instances are those that have not been terminated.
var (
	live          = sdk.Filter("instance-state-name", "pending", "running", "stopping", "stopped")
	notTerminated = sdk.Filter("instance-state-name", "pending", "running", "stopping", "stopped", "shutting-down")
)

func (l *instances) describe(ctx context.Context, filters ...ec2types.Filter) ([]capacity.Instance, error) {
	var out []capacity.Instance
	pages := ec2.NewDescribeInstancesPaginator(l.ec2, &ec2.DescribeInstancesInput{Filters: filters, MaxResults: awssdk.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Reservations {
			for i := range r.Instances {
				inst := l.named(instanceOf(&r.Instances[i]))
				inst.CloudInitialized = l.cluster.Known().EKS()
				if ip := awssdk.ToString(r.Instances[i].Ipv6Address); ip != "" && l.cluster.Known().IPv6() {
					inst.InternalIP = ip // it must be right now: the kubelet keeps the address of a Node created ahead, and so do host-network pods
				}
				if o := r.Instances[i].Operator; o != nil && awssdk.ToBool(o.Managed) {
					inst.Operator = cmp.Or(awssdk.ToString(o.Principal), "unknown")
				}
				if s := r.Instances[i].StateReason; s != nil && awssdk.ToString(s.Code) == spotTaken {
					l.sawTaken(&inst)
				}
				if s := r.Instances[i].StateReason; s != nil {
					inst.Taken = takenByEC2[awssdk.ToString(s.Code)]
				}
				l.seen.Note(&r.Instances[i], inst.ReservationID, inst.Ended())
				if inst.Ended() {
					inst.EndReason = endReason(&r.Instances[i])
				}
				out = append(out, inst)
			}
		}
	}
	slices.SortFunc(out, byID)
	return out, nil
}

// endReason returns EC2's explanation for the end of an instance. The message begins with the code that matters
// ("Client.VolumeLimitExceeded: Volume limit exceeded"); the field for the code may contain another one, Server.InternalError.
func endReason(i *ec2types.Instance) string {
	said := awssdk.ToString(i.StateTransitionReason)
	if r := i.StateReason; r != nil {
		said = cmp.Or(awssdk.ToString(r.Message), awssdk.ToString(r.Code), said)
	}
	return said
}

func byID(a, b capacity.Instance) int { return strings.Compare(a.ID, b.ID) }

func instanceOf(i *ec2types.Instance) capacity.Instance {
	out := capacity.Instance{
		ID: awssdk.ToString(i.InstanceId), InstanceType: string(i.InstanceType), ImageID: awssdk.ToString(i.ImageId),
		CapacityType: karpv1.CapacityTypeOnDemand, InternalIP: awssdk.ToString(i.PrivateIpAddress),
		Hostname: awssdk.ToString(i.PrivateDnsName), LaunchedAt: awssdk.ToTime(i.LaunchTime), Tags: map[string]string{},
	}
	if i.State != nil {
		out.State = capacity.InstanceState(i.State.Name)
	}
	if v := i.Placement; v != nil {
		out.Zone = awssdk.ToString(v.AvailabilityZone)
		if v.Tenancy == ec2types.TenancyDedicated {
			out.Tenancy = dedicated
		}
		if n := awssdk.ToInt32(v.PartitionNumber); n > 0 {
			out.Labels = map[string]string{ec2nc.LabelPlacementGroupPartition: number(int64(n))}
		}
	}
	if v := i.IamInstanceProfile; v != nil {
		arn := awssdk.ToString(v.Arn)
		out.Annotations = ofProfile(arn[strings.LastIndexByte(arn, '/')+1:])
	}
	if i.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot || i.SpotInstanceRequestId != nil {
		out.CapacityType = karpv1.CapacityTypeSpot
	}
	// Only an instance that was launched into reservations only counts as reserved: an open reservation may cover any instance by
	// chance.
	if s := i.CapacityReservationSpecification; s != nil && i.CapacityReservationId != nil &&
		s.CapacityReservationPreference == ec2types.CapacityReservationPreferenceCapacityReservationsOnly {
		out.CapacityType, out.ReservationID = karpv1.CapacityTypeReserved, *i.CapacityReservationId
	}
	for _, t := range i.Tags {
		out.Tags[awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
	}
	objects.UseNewNames(out.Tags)
	out.LaunchBatch, out.Claim = out.Tags[objects.TagLaunchBatch], out.Tags[ec2nc.NodeClaimTagKey]
	out.ProviderID = providerID(out.Zone, out.ID)
	return out
}

// ofProfile returns the annotation of a claim whose instance has the instance profile. Karpenter deletes profiles of this cluster that neither
// a node class nor a claim names.
func ofProfile(name string) map[string]string {
	if name == "" {
		return nil
	}
	return map[string]string{ec2nc.AnnotationInstanceProfile: name}
}

// named returns the instance with the name that its kubelet will register under, by the naming of its class.
func (l *instances) named(i capacity.Instance) capacity.Instance {
	form := bootstrap.NamePrivateDNS
	if c := l.classes.get(i.Tags[ec2nc.NodeClassTagKey]); c != nil {
		if f, err := bootstrap.FamilyOf(&c.current().Spec); err == nil {
			form = c.form(f)
		}
	}
	name, sure := form.Name(&i)
	i.NodeName, i.NameUnsure = name, !sure
	return i
}

// withProfile reports whether a live instance has the instance profile with that ARN.
func (l *instances) withProfile(ctx context.Context, arn string) (bool, error) {
	users, err := l.describe(ctx, sdk.Filter("iam-instance-profile.arn", arn), live)
	return len(users) > 0, err
}

// sawTaken handles an instance that EC2 shows as interrupted, whether or not there was a warning before.
func (l *instances) sawTaken(i *capacity.Instance) {
	if l.taken.first(i.ID) {
		l.exhausted.Interrupted(capacity.OfferKey{InstanceType: i.InstanceType, Zone: i.Zone, CapacityType: i.CapacityType})
	}
}

func providerID(zone, id string) string { return "aws:///" + zone + "/" + id }

// TagClaim tags an instance with its NodeClaim.
func (l *instances) TagClaim(ctx context.Context, id, claim, nodeName string) error {
	_, err := l.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: sdk.SortedTags(ownership.ClaimTags(claim, nodeName))})
	return sdk.Wrap(err, "tagging instance "+id)
}
