package instancestatus

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

const (
	// every is how often EC2 is asked: as often as it repeats its checks.
	every = time.Minute
	// believed is how long the last answer counts while EC2 can't be asked. After that no instance is known to be impaired.
	believed = 5 * time.Minute
	// complainEvery is how often a failure is logged as an error.
	complainEvery = time.Hour
)

// Poller keeps what EC2 says about the status of instances. All methods are safe for concurrent use; OnInterruption is called before Run.
type Poller struct {
	api   sdk.StatusAPI
	clock clock.WithTicker
	// hold returns an error if another controller acts on instances now, so that no interruption may be reported; else nil.
	hold           func() error
	onInterruption func(context.Context, []capacity.Interruption) []error
	impaired       atomic.Pointer[map[string]cloudprovider.Impairment]
}

// NewPoller returns a poller that knows of no impaired instance.
func NewPoller(api sdk.StatusAPI, c clock.WithTicker, hold func() error) *Poller {
	return &Poller{api: api, clock: c, hold: hold}
}

// OnInterruption registers f for the events that EC2 has scheduled for instances. They are reported each minute.
func (p *Poller) OnInterruption(f func(context.Context, []capacity.Interruption) []error) {
	p.onInterruption = f
}

// Impaired returns the instances of the whole account that fail one of EC2's status checks, by their IDs. The caller must not change the result.
func (p *Poller) Impaired() map[string]cloudprovider.Impairment {
	if known := p.impaired.Load(); known != nil {
		return *known
	}
	return nil
}

// Poll asks EC2 each minute until ctx ends.
func (p *Poller) Poll(ctx context.Context) {
	var answered, complained time.Time
	for {
		err := p.ask(ctx)
		now := p.clock.Now()
		switch {
		case err == nil:
			answered, complained = now, time.Time{}
		case ctx.Err() == nil && (complained.IsZero() || now.Sub(complained) >= complainEvery):
			complained = now
			klog.FromContext(ctx).Error(err, "Could not ask for the status of instances, will retry. Without ec2:DescribeInstanceStatus, nodes whose instances fail EC2's checks are not repaired")
		}
		if err != nil && now.Sub(answered) >= believed {
			p.impaired.Store(nil)
		}
		if !sdk.Sleep(ctx, p.clock, every) {
			return
		}
	}
}

// ask asks for the instances that fail a check, and for those with scheduled events. EC2 returns what matches all filters of a call, so that takes
// three calls. The status of attached volumes doesn't count: they may be volumes of pods.
func (p *Poller) ask(ctx context.Context) error {
	known, impaired := map[string]cloudprovider.Impairment{}, string(ec2types.SummaryStatusImpaired)
	for _, check := range []struct {
		filter, text string
		of           func(*ec2types.InstanceStatus) *ec2types.InstanceStatusSummary
	}{
		{"system-status.status", "EC2's status check of its system", func(s *ec2types.InstanceStatus) *ec2types.InstanceStatusSummary { return s.SystemStatus }},
		{"instance-status.status", "EC2's status check of its instance", func(s *ec2types.InstanceStatus) *ec2types.InstanceStatusSummary { return s.InstanceStatus }},
	} {
		found, err := p.list(ctx, check.filter, impaired)
		if err != nil {
			return err
		}
		for i := range found {
			id := awssdk.ToString(found[i].InstanceId)
			since, failed := failedSince(check.of(&found[i]))
			if before, there := known[id]; failed && (!there || since.Before(before.Since)) {
				known[id] = cloudprovider.Impairment{Check: check.text, Since: since}
			}
		}
	}
	p.impaired.Store(&known)
	scheduled, err := p.list(ctx, "event.code", string(ec2types.EventCodeInstanceReboot), string(ec2types.EventCodeSystemReboot),
		string(ec2types.EventCodeSystemMaintenance), string(ec2types.EventCodeInstanceRetirement), string(ec2types.EventCodeInstanceStop))
	if err != nil {
		return err
	}
	p.report(ctx, scheduled)
	return nil
}

// list returns the statuses of running instances for which a filter has one of the values.
func (p *Poller) list(ctx context.Context, filter string, values ...string) (out []ec2types.InstanceStatus, err error) {
	pages := ec2.NewDescribeInstanceStatusPaginator(p.api, &ec2.DescribeInstanceStatusInput{Filters: []ec2types.Filter{{Name: &filter, Values: values}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, sdk.Wrap(err, "listing the status of instances")
		}
		out = append(out, page.InstanceStatuses...)
	}
	return out, nil
}

// failedSince returns since when a check fails. EC2 may call a check impaired without naming a time: then the check doesn't count as failed.
func failedSince(s *ec2types.InstanceStatusSummary) (since time.Time, failed bool) {
	if s == nil {
		return time.Time{}, false
	}
	for _, d := range s.Details {
		if d.Status == ec2types.StatusTypeFailed && d.ImpairedSince != nil && (!failed || d.ImpairedSince.Before(since)) {
			since, failed = *d.ImpairedSince, true
		}
	}
	return since, failed
}

// report reports scheduled events. EC2 still shows those that are over for a week, and says so in their descriptions.
func (p *Poller) report(ctx context.Context, statuses []ec2types.InstanceStatus) {
	if p.onInterruption == nil || p.hold() != nil {
		return
	}
	var all []capacity.Interruption
	for i := range statuses {
		for _, e := range statuses[i].Events {
			text := awssdk.ToString(e.Description)
			if strings.HasPrefix(text, "[Completed]") || strings.HasPrefix(text, "[Canceled]") {
				continue
			}
			all = append(all, capacity.Interruption{InstanceID: awssdk.ToString(statuses[i].InstanceId), Kind: capacity.MaintenanceScheduled, Ends: awssdk.ToTime(e.NotBefore)})
		}
	}
	if len(all) == 0 {
		return
	}
	for i, err := range p.onInterruption(ctx, all) {
		if err != nil {
			klog.FromContext(ctx).Error(err, "A scheduled event could not be handled, will retry", "instance", all[i].InstanceID)
		}
	}
}
