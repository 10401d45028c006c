package instancestatus

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// checks answers by filter, one instance per page, or with an error while there is one.
type checks struct {
	of  map[string][]ec2types.InstanceStatus
	err atomic.Pointer[error]
}

func (c *checks) DescribeInstanceStatus(_ context.Context, in *ec2.DescribeInstanceStatusInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstanceStatusOutput, error) {
	if err := c.err.Load(); err != nil {
		return nil, *err
	}
	all := c.of[*in.Filters[0].Name]
	if in.NextToken != nil {
		all = all[len(*in.NextToken):]
	}
	out := &ec2.DescribeInstanceStatusOutput{}
	if len(all) > 1 {
		out.NextToken = awssdk.String(awssdk.ToString(in.NextToken) + "x")
	}
	if len(all) > 0 {
		out.InstanceStatuses = all[:1]
	}
	return out, nil
}

func failing(since ...time.Time) *ec2types.InstanceStatusSummary {
	s := &ec2types.InstanceStatusSummary{Status: ec2types.SummaryStatusImpaired}
	for i := range since {
		s.Details = append(s.Details, ec2types.InstanceStatusDetails{Status: ec2types.StatusTypeFailed, ImpairedSince: &since[i]})
	}
	return s
}

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		at := func(m int) time.Time { return begin.Add(time.Duration(m) * time.Minute) }
		event := func(text string) ec2types.InstanceStatusEvent {
			return ec2types.InstanceStatusEvent{Code: ec2types.EventCodeInstanceRetirement, Description: &text, NotBefore: awssdk.Time(at(100))}
		}
		api := &checks{of: map[string][]ec2types.InstanceStatus{
			"system-status.status":   {{InstanceId: awssdk.String("i-1"), SystemStatus: failing(at(3), at(2))}, {InstanceId: awssdk.String("i-2"), SystemStatus: failing(at(5)), InstanceStatus: failing(at(4))}},
			"instance-status.status": {{InstanceId: awssdk.String("i-2"), InstanceStatus: failing(at(4))}, {InstanceId: awssdk.String("i-3"), InstanceStatus: failing()}},
			"event.code":             {{InstanceId: awssdk.String("i-4"), Events: []ec2types.InstanceStatusEvent{event("[Completed] retired"), event("The host fails"), event("[Canceled] never mind")}}},
		}}
		// The poller wakes by the bubble's clock, which orders nothing for the race detector: what both sides touch is atomic.
		var otherLeads atomic.Bool
		p := NewPoller(api, clock.RealClock{}, func() error {
			if otherLeads.Load() {
				return errors.New("Karpenter leads")
			}
			return nil
		})
		var heard atomic.Pointer[[]capacity.Interruption]
		p.OnInterruption(func(_ context.Context, all []capacity.Interruption) []error {
			heard.Store(&all)
			return make([]error, len(all))
		})
		if len(p.Impaired()) > 0 {
			t.Error("impaired before anything was asked")
		}
		go p.Poll(t.Context())
		synctest.Wait()
		want := map[string]cloudprovider.Impairment{
			"i-1": {Check: "EC2's status check of its system", Since: at(2)}, "i-2": {Check: "EC2's status check of its instance", Since: at(4)},
		}
		if diff := cmp.Diff(want, p.Impaired()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if diff := cmp.Diff([]capacity.Interruption{{InstanceID: "i-4", Kind: capacity.MaintenanceScheduled, Ends: at(100)}}, *heard.Load()); diff != "" {
			t.Errorf("events, -want +got:\n%s", diff)
		}

		notAllowed := errors.New("not allowed")
		api.err.Store(&notAllowed)
		heard.Store(nil)
		otherLeads.Store(true)
		<-time.After(4 * time.Minute)
		synctest.Wait()
		if len(p.Impaired()) != 2 {
			t.Error("an answer of four minutes ago is forgotten")
		}
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if len(p.Impaired()) > 0 {
			t.Error("an answer of six minutes ago still counts")
		}
		api.err.Store(nil)
		<-time.After(time.Minute)
		synctest.Wait()
		if len(p.Impaired()) != 2 || heard.Load() != nil {
			t.Errorf("after the failures: %d impaired, events reported though another controller leads: %t", len(p.Impaired()), heard.Load() != nil)
		}
	})
}
