package interruption

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// notice is how long before an interruption EC2 warns of it.
const notice = 2 * time.Minute

// event is EventBridge's envelope with the fields of all events that we understand.
type event struct {
	DetailType string `json:"detail-type"`
	Source     string
	Time       time.Time
	Detail     struct {
		InstanceID     string `json:"instance-id"`
		InstanceAction string `json:"instance-action"`
		State          string

		// AWS Health.
		Service           string
		EventTypeCategory string
		StartTime         string
		AffectedEntities  []struct{ EntityValue string }
	}
}

// interruptionsOf returns the interruptions that a message of the queue announces. It returns none and no error for other messages.
func interruptionsOf(body string) ([]capacity.Interruption, error) {
	var e event
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return nil, fmt.Errorf("reading an event: %w", err)
	}
	one := func(kind capacity.InterruptionKind, ends time.Time) ([]capacity.Interruption, error) {
		if !strings.HasPrefix(e.Detail.InstanceID, "i-") {
			return nil, fmt.Errorf("event %q names no instance but %q", e.DetailType, e.Detail.InstanceID)
		}
		return []capacity.Interruption{{InstanceID: e.Detail.InstanceID, Kind: kind, Ends: ends}}, nil
	}
	switch e.Source + " " + e.DetailType {
	case "aws.ec2 EC2 Spot Instance Interruption Warning":
		if e.Detail.InstanceAction == "hibernate" {
			return one(capacity.SpotInterrupted, e.Time) // hibernation begins at once
		}
		return one(capacity.SpotInterrupted, e.Time.Add(notice))
	case "aws.ec2 EC2 Capacity Reservation Instance Interruption Warning":
		return one(capacity.ReservationInterrupted, e.Time.Add(notice))
	case "aws.ec2 EC2 Instance Rebalance Recommendation":
		return one(capacity.SpotRebalance, time.Time{})
	case "aws.ec2 EC2 Instance State-change Notification":
		switch e.Detail.State {
		case "stopping", "stopped":
			return one(capacity.MachineStopping, e.Time)
		case "shutting-down", "terminated":
			return one(capacity.MachineTerminating, e.Time)
		}
	case "aws.health AWS Health Event":
		return e.maintenance(), nil
	}
	return nil, nil
}

// maintenance returns the scheduled maintenance of instances in an AWS Health event.
func (e *event) maintenance() []capacity.Interruption {
	if e.Detail.Service != "EC2" || e.Detail.EventTypeCategory != "scheduledChange" {
		return nil
	}
	begins, err := time.Parse(time.RFC1123, e.Detail.StartTime)
	if err != nil {
		begins = time.Time{}
	}
	var out []capacity.Interruption
	for _, x := range e.Detail.AffectedEntities {
		if strings.HasPrefix(x.EntityValue, "i-") { // volumes have scheduled changes, too
			out = append(out, capacity.Interruption{InstanceID: x.EntityValue, Kind: capacity.MaintenanceScheduled, Ends: begins})
		}
	}
	return out
}
