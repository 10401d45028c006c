package interruption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestInterruptionsOf(t *testing.T) {
	at := time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC)
	ec2Event := func(kind, detail string) string {
		return `{"version":"0","id":"1","source":"aws.ec2","detail-type":"` + kind + `","account":"1","time":"2026-11-21T22:00:00Z","region":"us-west-2","resources":[],"detail":{` + detail + `}}`
	}
	health := func(detail string) string {
		return `{"source":"aws.health","detail-type":"AWS Health Event","time":"2026-11-21T22:00:00Z","detail":{` + detail + `}}`
	}
	one := func(kind capacity.InterruptionKind, ends time.Time) []capacity.Interruption {
		return []capacity.Interruption{{InstanceID: "i-1", Kind: kind, Ends: ends}}
	}
	const state = "EC2 Instance State-change Notification"
	for _, tt := range []struct {
		name, body string
		want       []capacity.Interruption
		bad        bool
	}{
		{"spot", ec2Event("EC2 Spot Instance Interruption Warning", `"instance-id":"i-1","instance-action":"terminate"`), one(capacity.SpotInterrupted, at.Add(2*time.Minute)), false},
		{"spot that hibernates at once", ec2Event("EC2 Spot Instance Interruption Warning", `"instance-id":"i-1","instance-action":"hibernate"`), one(capacity.SpotInterrupted, at), false},
		{"a recommendation", ec2Event("EC2 Instance Rebalance Recommendation", `"instance-id":"i-1"`), one(capacity.SpotRebalance, time.Time{}), false},
		{"a reservation", ec2Event("EC2 Capacity Reservation Instance Interruption Warning", `"instance-id":"i-1","instance-action":"terminate"`), one(capacity.ReservationInterrupted, at.Add(2*time.Minute)), false},
		{"stopping", ec2Event(state, `"instance-id":"i-1","state":"stopping"`), one(capacity.MachineStopping, at), false},
		{"terminated", ec2Event(state, `"instance-id":"i-1","state":"terminated"`), one(capacity.MachineTerminating, at), false},
		{"running", ec2Event(state, `"instance-id":"i-1","state":"running"`), nil, false},
		{"maintenance of two machines and a volume", health(`"service":"EC2","eventTypeCategory":"scheduledChange","startTime":"Mon, 23 Nov 2026 10:00:00 GMT",
			"affectedEntities":[{"entityValue":"i-1"},{"entityValue":"vol-1"},{"entityValue":"i-2"}]`), []capacity.Interruption{
			{InstanceID: "i-1", Kind: capacity.MaintenanceScheduled, Ends: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)},
			{InstanceID: "i-2", Kind: capacity.MaintenanceScheduled, Ends: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)},
		}, false},
		{"maintenance some time", health(`"service":"EC2","eventTypeCategory":"scheduledChange","startTime":"soon","affectedEntities":[{"entityValue":"i-1"}]`), one(capacity.MaintenanceScheduled, time.Time{}), false},
		{"the health of another service", health(`"service":"RDS","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-1"}]`), nil, false},
		{"trouble, and no plan", health(`"service":"EC2","eventTypeCategory":"issue","affectedEntities":[{"entityValue":"i-1"}]`), nil, false},
		{"something new", ec2Event("EC2 Moon Landing", `"instance-id":"i-1"`), nil, false},
		{"somebody else's event", `{"source":"me","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"i-1"}}`, nil, false},
		{"no instance", ec2Event("EC2 Spot Instance Interruption Warning", `"instance-action":"terminate"`), nil, true},
		{"no event", `hello`, nil, true},
		{"nothing", ``, nil, true},
		{"another shape", `{"source":"aws.ec2","detail-type":"EC2 Instance Rebalance Recommendation","detail":[1]}`, nil, true},
	} {
		got, err := interruptionsOf(tt.body)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err != nil) != tt.bad {
			t.Errorf("%s (-want +got), %v:\n%s", tt.name, err, diff)
		}
	}
}
