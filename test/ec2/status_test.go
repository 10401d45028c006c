package ec2

import (
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// DescribeInstanceStatus finds the instances whose checks fail, and those with scheduled events, by filters that are joined by and.
func TestInstanceStatus(t *testing.T) {
	a := newAccount(t)
	ids := a.launched(a.fleetOf(3, a.template("lt"), "on-demand", abc[:1], "m5.large"))
	a.step(10 * time.Second)
	list := func(filters ...string) (out []types.InstanceStatus) {
		t.Helper()
		in := &awsec2.DescribeInstanceStatusInput{}
		for i := 0; i < len(filters); i += 2 {
			in.Filters = append(in.Filters, types.Filter{Name: &filters[i], Values: []string{filters[i+1]}})
		}
		got, err := a.ec2.DescribeInstanceStatus(a.ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		return got.InstanceStatuses
	}
	if all := list(); len(all) != 3 || all[0].SystemStatus.Status != types.SummaryStatusOk {
		t.Fatalf("at first: %+v", all)
	}
	for _, err := range []error{a.Impair(ids[0], SystemStatus, 3*time.Minute), a.Impair(ids[1], InstanceStatus, 0), a.Schedule(ids[2], "instance-stop", "The host fails", epoch.Add(time.Hour))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	system := list("system-status.status", "impaired")
	if len(system) != 1 || *system[0].InstanceId != ids[0] || system[0].SystemStatus.Details[0].Status != types.StatusTypeFailed ||
		!aws.ToTime(system[0].SystemStatus.Details[0].ImpairedSince).Equal(a.clock.Now().Add(-3*time.Minute)) {
		t.Errorf("system: %+v", system)
	}
	if own := list("instance-status.status", "impaired"); len(own) != 1 || *own[0].InstanceId != ids[1] {
		t.Errorf("instance: %+v", own)
	}
	if both := list("instance-status.status", "impaired", "system-status.status", "impaired"); len(both) != 0 {
		t.Errorf("both: %+v", both)
	}
	if events := list("event.code", "instance-stop"); len(events) != 1 || *events[0].InstanceId != ids[2] || *events[0].Events[0].Description != "The host fails" {
		t.Errorf("events: %+v", events)
	}
	if _, err := a.ec2.DescribeInstanceStatus(a.ctx, &awsec2.DescribeInstanceStatusInput{InstanceIds: slices.Repeat(ids, 34)}); err == nil {
		t.Error("102 ids in one call are accepted")
	}
	if err := a.Mend(ids[0]); err != nil {
		t.Fatal(err)
	}
	if system := list("system-status.status", "impaired"); len(system) != 0 {
		t.Errorf("mended: %+v", system)
	}
}
