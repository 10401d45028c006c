package interruption

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Anyone with permission to write to the queue, or to create a rule that does, can put any message there. So EC2 is asked about each message before
// a node is drained because of it.

const (
	// looks is how often a message is received, 20 s apart, before it is ignored because EC2's API shows nothing of it: the API may be some
	// seconds behind the events.
	looks = 4
	// Because of messages that EC2 can neither confirm nor deny, at most unconfirmedAtOnce nodes are drained at once, and then
	// unconfirmedPerMinute.
	unconfirmedAtOnce, unconfirmedPerMinute = 10, 5
)

// Asked are the calls with which messages are confirmed.
type Asked interface {
	sdk.StatusAPI
	sdk.SpotAPI
	DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error)
}

// outcome says whether a message about an instance is believed.
type outcome string

const (
	// confirmed: EC2 says so as well. foreign: the instance isn't this cluster's, so that the message changes nothing.
	confirmed outcome = "confirmed"
	foreign   outcome = "foreign"
	// unconfirmed: EC2 can't tell, and the message is believed. delayed: EC2 can't tell, and the message isn't believed yet, because too many
	// such messages were believed just before.
	unconfirmed outcome = "unconfirmed"
	delayed     outcome = "delayed"
	// denied: EC2 says otherwise; the message is received again. refuted: EC2 still says otherwise after looks receives; it is ignored.
	denied  outcome = "denied"
	refuted outcome = "refuted"
)

// errNotConfirmed leaves a message on the queue, to be received again.
var errNotConfirmed = errors.New("EC2 doesn't confirm the message")

// Confirmer asks EC2 whether it agrees with messages of the queue.
type Confirmer struct {
	api   Asked
	owner ownership.Owner
	clock clock.PassiveClock

	mu    sync.Mutex
	level float64 // how many unconfirmed messages may be believed at time at (a token bucket)
	at    time.Time
}

// NewConfirmer returns a confirmer for the messages about an owner's instances.
func NewConfirmer(api Asked, c clock.PassiveClock, o ownership.Owner) *Confirmer {
	return &Confirmer{api: api, owner: o, clock: c, level: unconfirmedAtOnce, at: c.Now()}
}

// sift decides which interruptions to handle; all[i] was received times[i] times. It returns those to handle, with the index of each in all. errs[i]
// is set if the message of all[i] has to be received again.
func (c *Confirmer) sift(ctx context.Context, all []capacity.Interruption, times []int) (handle []capacity.Interruption, index []int, errs []error) {
	errs = make([]error, len(all))
	found := c.ask(ctx, all)
	for i, x := range all {
		o := found.judge(x)
		switch {
		case o == denied && times[i] >= looks:
			o = refuted
		case o == unconfirmed && !c.take():
			o = delayed
		}
		if x.Kind != capacity.SpotRebalance {
			confirmations.WithLabelValues(string(x.Kind), string(o)).Inc()
		}
		switch o {
		case foreign:
			continue
		case denied, delayed:
			klog.FromContext(ctx).V(2).Info("EC2 doesn't confirm a message on the interruption queue, which will be received again", "instance", x.InstanceID, "kind", x.Kind, "outcome", o)
			errs[i] = errNotConfirmed
			continue
		case refuted:
			klog.FromContext(ctx).Info("EC2 says otherwise than a message on the interruption queue, which is ignored", "instance", x.InstanceID, "kind", x.Kind)
			x = capacity.Interruption{InstanceID: x.InstanceID, Kind: capacity.InterruptionRefuted}
		case unconfirmed:
			x.Unconfirmed = true
		}
		handle, index = append(handle, x), append(index, i)
	}
	return handle, index, errs
}

// take reports whether one more node may be drained now because of an unconfirmed message, and counts it if so.
func (c *Confirmer) take() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.level = min(unconfirmedAtOnce, c.level+now.Sub(c.at).Minutes()*unconfirmedPerMinute)
	c.at = now
	if c.level < 1 {
		return false
	}
	c.level--
	return true
}

// answers are what EC2 says about the instances of some messages. known and events tell which questions EC2 has answered.
type answers struct {
	owner            ownership.Owner
	instances        map[string]*ec2types.Instance
	taken, scheduled map[string]bool // by instance id: EC2 takes it back; EC2 has scheduled an event for it
	known, events    bool            // EC2 has answered about instances, and about their scheduled events
}

// ask asks EC2 about everything that the messages say.
func (c *Confirmer) ask(ctx context.Context, all []capacity.Interruption) *answers {
	a := &answers{owner: c.owner, instances: map[string]*ec2types.Instance{}, taken: map[string]bool{}, scheduled: map[string]bool{}}
	of := func(kinds ...capacity.InterruptionKind) (ids []string) {
		for _, x := range all {
			if (len(kinds) == 0 || slices.Contains(kinds, x.Kind)) && x.Kind != capacity.SpotRebalance {
				ids = append(ids, x.InstanceID)
			}
		}
		slices.Sort(ids)
		return slices.Compact(ids)
	}
	a.known = c.answered(ctx, "instances", of(), func(ids []string) error { return c.describe(ctx, ids, a) })
	c.answered(ctx, "spot requests", of(capacity.SpotInterrupted), func(ids []string) error { return c.spot(ctx, ids, a) })
	a.events = c.answered(ctx, "scheduled events", of(capacity.MaintenanceScheduled), func(ids []string) error { return c.status(ctx, ids, a) })
	return a
}

// answered reports whether EC2 has answered about all instances.
func (c *Confirmer) answered(ctx context.Context, what string, ids []string, ask func([]string) error) bool {
	for chunk := range slices.Chunk(ids, sdk.MaxFilterValues) {
		if err := ask(chunk); err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not ask EC2 whether messages on the interruption queue are true", "about", what, "instances", len(ids))
			}
			return false
		}
	}
	return true
}

// describe asks for instances by a filter, because one id that EC2 does not know fails a whole request if it is in the list.
func (c *Confirmer) describe(ctx context.Context, ids []string, a *answers) error {
	out, err := c.api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{sdk.Filter("instance-id", ids...)}})
	if err != nil {
		return sdk.Wrap(err, "describing instances")
	}
	for _, r := range out.Reservations {
		for i := range r.Instances {
			a.instances[awssdk.ToString(r.Instances[i].InstanceId)] = &r.Instances[i]
		}
	}
	return nil
}

func (c *Confirmer) spot(ctx context.Context, ids []string, a *answers) error {
	out, err := c.api.DescribeSpotInstanceRequests(ctx, &ec2.DescribeSpotInstanceRequestsInput{Filters: []ec2types.Filter{sdk.Filter("instance-id", ids...)}})
	if err != nil {
		return sdk.Wrap(err, "describing spot instance requests")
	}
	for _, r := range out.SpotInstanceRequests {
		if r.Status != nil && takesBack(awssdk.ToString(r.Status.Code)) {
			a.taken[awssdk.ToString(r.InstanceId)] = true
		}
	}
	return nil
}

// takesBack reports whether the status of a spot request says that EC2 takes its instance back: marked-for-termination,
// marked-for-stop, marked-for-termination-by-experiment, instance-terminated-no-capacity, instance-stopped-by-price and so on.
func takesBack(code string) bool {
	return strings.HasPrefix(code, "marked-for-") || strings.HasPrefix(code, "instance-terminated-") || strings.HasPrefix(code, "instance-stopped-")
}

// maxStatusIDs is how many instances DescribeInstanceStatus takes in one call, according to its reference. It has no filter by instance.
const maxStatusIDs = 100

func (c *Confirmer) status(ctx context.Context, ids []string, a *answers) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return a.instances[id] == nil })
	if len(ids) == 0 {
		return nil
	}
	for chunk := range slices.Chunk(ids, maxStatusIDs) {
		out, err := c.api.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{InstanceIds: chunk})
		if err != nil {
			return sdk.Wrap(err, "listing the status of instances")
		}
		for _, s := range out.InstanceStatuses {
			a.scheduled[awssdk.ToString(s.InstanceId)] = slices.ContainsFunc(s.Events, func(e ec2types.InstanceStatusEvent) bool {
				text := awssdk.ToString(e.Description)
				return !strings.HasPrefix(text, "[Completed]") && !strings.HasPrefix(text, "[Canceled]")
			})
		}
	}
	return nil
}

// judge compares a message with EC2's answers.
func (a *answers) judge(x capacity.Interruption) outcome {
	if x.Kind == capacity.SpotRebalance {
		return confirmed // EC2 shows nothing of it, and no pod is evicted before its node has been replaced
	}
	in := a.instances[x.InstanceID]
	switch {
	case !a.known:
		return a.unasked(x)
	case in == nil:
		return denied // it may be too new for EC2 to show it
	case !a.owner.Marked(in.Tags, a.owner.Tag()):
		return foreign
	case in.State != nil && slices.Contains(ending, in.State.Name):
		return confirmed
	}
	switch x.Kind {
	case capacity.SpotInterrupted:
		switch {
		case in.InstanceLifecycle != ec2types.InstanceLifecycleTypeSpot:
			return denied
		case a.taken[x.InstanceID]:
			return confirmed
		}
		return unconfirmed // EC2 doesn't promise that the request's status is as fast as the warning
	case capacity.ReservationInterrupted:
		if in.CapacityReservationId == nil {
			return denied
		}
		return unconfirmed
	case capacity.MaintenanceScheduled:
		switch {
		case a.scheduled[x.InstanceID]:
			return confirmed
		case a.events:
			return denied
		}
		return unconfirmed
	}
	return denied
}

// unasked judges a message while EC2 doesn't answer. An interruption ends the instance in minutes, so it is believed. Other messages wait.
func (a *answers) unasked(x capacity.Interruption) outcome {
	if x.Kind == capacity.SpotInterrupted || x.Kind == capacity.ReservationInterrupted {
		return unconfirmed
	}
	return delayed
}

var ending = []ec2types.InstanceStateName{
	ec2types.InstanceStateNameStopping, ec2types.InstanceStateNameStopped, ec2types.InstanceStateNameShuttingDown, ec2types.InstanceStateNameTerminated,
}
