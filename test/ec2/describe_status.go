package ec2

import (
	"time"
)

// Checks of an instance's status.
const (
	SystemStatus      = "system"
	InstanceStatus    = "instance"
	AttachedEBSStatus = "attached-ebs"
)

// instanceStatus is what EC2's checks of an instance say.
type instanceStatus struct {
	failing map[string]time.Time // since when, by check
	events  []scheduledEvent
}

type scheduledEvent struct {
	code, description string
	notBefore         time.Time
}

// Impair makes a status check of a running instance fail, as it has for a while already; the instance runs on.
func (s *Sim) Impair(id, check string, since time.Duration) error {
	return s.mark(id, "", func(w *world, in *instance) {
		if in.status.failing == nil {
			in.status.failing = map[string]time.Time{}
		}
		in.status.failing[check] = w.now.Add(-since)
	})
}

// Mend makes all status checks of an instance pass again.
func (s *Sim) Mend(id string) error {
	return s.mark(id, "", func(_ *world, in *instance) { in.status.failing = nil })
}

// Schedule schedules an event for an instance, which only DescribeInstanceStatus tells of. It has no further effect.
func (s *Sim) Schedule(id, code, description string, notBefore time.Time) error {
	return s.mark(id, "", func(_ *world, in *instance) {
		in.status.events = append(in.status.events, scheduledEvent{code, description, notBefore})
	})
}

type statusItem struct {
	ID       string            `xml:"instanceId"`
	Zone     string            `xml:"availabilityZone"`
	State    stateItem         `xml:"instanceState"`
	System   statusSummary     `xml:"systemStatus"`
	Instance statusSummary     `xml:"instanceStatus"`
	EBS      statusSummary     `xml:"attachedEbsStatus"`
	Events   []statusEventItem `xml:"eventsSet>item"`
}

type statusSummary struct {
	Status  string         `xml:"status"`
	Details []statusDetail `xml:"details>item"`
}

type statusDetail struct {
	Name   string `xml:"name"`
	Status string `xml:"status"`
	Since  string `xml:"impairedSince,omitempty"`
}

type statusEventItem struct {
	Code        string `xml:"code"`
	Description string `xml:"description"`
	NotBefore   string `xml:"notBefore"`
}

// summary returns the result of a check.
func (s *instanceStatus) summary(check string) statusSummary {
	since, fails := s.failing[check]
	if !fails {
		return statusSummary{"ok", []statusDetail{{Name: "reachability", Status: "passed"}}}
	}
	return statusSummary{"impaired", []statusDetail{{"reachability", "failed", timestamp(since)}}}
}

// statusMatcher has the filters that only this call has.
func (w *world) statusMatcher(in *instance) matcher {
	usual := w.instanceMatcher(in)
	return func(name string) ([]string, bool) {
		reachability := func(check string) ([]string, bool) {
			return []string{in.status.summary(check).Details[0].Status}, true
		}
		switch name {
		case "system-status.reachability":
			return reachability(SystemStatus)
		case "instance-status.reachability":
			return reachability(InstanceStatus)
		case "availability-zone-id":
			return []string{in.subnet.zoneID}, true
		case "system-status.status":
			return []string{in.status.summary(SystemStatus).Status}, true
		case "instance-status.status":
			return []string{in.status.summary(InstanceStatus).Status}, true
		case "attached-ebs-status.status":
			return []string{in.status.summary(AttachedEBSStatus).Status}, true
		case "event.code":
			codes := []string{}
			for _, e := range in.status.events {
				codes = append(codes, e.code)
			}
			return codes, true
		case "availability-zone", "instance-state-name", "instance-state-code":
			return usual(name)
		}
		return nil, false
	}
}

func (w *world) describeInstanceStatus(r *Request) (any, error) {
	if n := len(r.params.strs("InstanceId")); n > 100 {
		return nil, failf("InvalidParameterValue", "The maximum number of instance IDs is 100, and %d were specified", n)
	}
	found, next, err := w.selected(r, w.statusMatcher)
	if err != nil {
		return nil, err
	}
	var items []statusItem
	for _, in := range found {
		if in.State != running && !r.params.bool("IncludeAllInstances") {
			continue
		}
		item := statusItem{ID: in.ID, Zone: in.Zone, State: stateItem{stateCodes[in.State], in.State},
			System: in.status.summary(SystemStatus), Instance: in.status.summary(InstanceStatus), EBS: in.status.summary(AttachedEBSStatus)}
		for _, e := range in.status.events {
			item.Events = append(item.Events, statusEventItem{e.code, e.description, timestamp(e.notBefore)})
		}
		items = append(items, item)
	}
	return struct {
		Statuses []statusItem `xml:"instanceStatusSet>item"`
		Next     string       `xml:"nextToken,omitempty"`
	}{items, next}, nil
}
