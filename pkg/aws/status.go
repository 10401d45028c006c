package aws

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/lookup"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/validation"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/zonalshift"
)

// publish makes a resolution the one that offerings are computed from, and reports its status.
func (s *classes) publish(ctx context.Context, c *class, r *resolution) {
	r.denied, r.away = c.denied.Load(), s.account.shifts.State()
	conditions := r.conditions()
	res := &resolved{
		class: r.class, family: r.family, settings: r.settings,
		subnets: r.subnets.Value, groups: r.groups.Value, images: r.images.Value, profile: r.profile.Value,
		reservations: r.reserved.Value, reservedKnown: r.reserved.Known, placement: r.placed.Value,
		unready: unready(r.class, conditions), denied: r.denied,
	}
	if ca, known := s.account.cluster.ClusterCA(); known && r.invalid == nil { // for a class with a malformed alias Hash would end the process
		res.hash = nodeclass.Kind.Hash(r.class, ca)
	}
	stored, changed := c.put(r.class, res)
	if !stored {
		return
	}
	if changed {
		if res.hash != "" {
			s.reported.ForgetOthers(res.version())
		}
		s.changed()
		klog.FromContext(ctx).V(2).Info("Resolved node class", "unready", res.unready, "subnets", len(res.subnets), "images", len(res.images))
	}
	st := res.status()
	st.Conditions = stamp(conditions, r, s.clock.Now())
	if r.reported != nil && reflect.DeepEqual(*r.reported, st) {
		return
	}
	r.reported = &st
	s.mu.Lock()
	fs := s.onNodeClass
	s.mu.Unlock()
	for _, f := range fs {
		f(nodeclass.Resolved(c.name, r.class.Generation, st))
	}
}

func (r *resolved) status() ec2nc.EC2NodeClassStatus {
	st := ec2nc.EC2NodeClassStatus{InstanceProfile: r.profile, SecurityGroups: slices.Clone(r.groups)}
	for _, s := range r.subnets {
		st.Subnets = append(st.Subnets, ec2nc.Subnet{ID: s.ID, Zone: s.Zone, ZoneID: s.ZoneID})
	}
	for i := range r.images {
		st.AMIs = append(st.AMIs, r.images[i].status(r.family))
	}
	for i := range r.reservations {
		st.CapacityReservations = append(st.CapacityReservations, r.reservations[i].Status())
	}
	return st
}

// stamp sets generation and times of conditions: the time of a condition is that of its last change of status.
func stamp(conditions []status.Condition, r *resolution, at time.Time) []status.Condition {
	before := r.class.Status.Conditions
	if r.reported != nil {
		before = r.reported.Conditions
	}
	now := metav1.NewTime(at)
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = r.class.Generation, now
		for _, b := range before {
			if b.Type == c.Type && b.Status == c.Status && !b.LastTransitionTime.IsZero() {
				c.LastTransitionTime = b.LastTransitionTime
			}
		}
	}
	return conditions
}

// unreadMessage is the condition's message where a script starts the kubelet.
const unreadMessage = "spec.userData: a script starts the kubelet, with settings that are not all known: how much of its machine a node keeps from pods is learned from the " +
	"first node of each instance type, and pods are bound only when the kubelet has registered"

// conditions returns the conditions of a class, the last of them Ready.
func (r *resolution) conditions() []status.Condition {
	out := []status.Condition{
		conditionOf(r, ec2nc.ConditionTypeSubnetsReady, "SubnetsNotFound", &r.subnets),
		conditionOf(r, ec2nc.ConditionTypeSecurityGroupsReady, "SecurityGroupsNotFound", &r.groups),
		conditionOf(r, ec2nc.ConditionTypeAMIsReady, "AMINotFound", &r.images),
		conditionOf(r, ec2nc.ConditionTypeInstanceProfileReady, "InstanceProfileNotFound", &r.profile),
	}
	spec := &r.class.Spec
	ok := func(kind string) status.Condition {
		return status.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind}
	}
	no := func(kind, reason, message string) status.Condition {
		return status.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if i := &out[0]; i.Status == metav1.ConditionTrue {
		i.Message = shifted(r.subnets.Value, r.away)
	}
	if i := &out[2]; i.Status == metav1.ConditionTrue {
		var old []string
		for _, img := range r.images.Value {
			if img.deprecated {
				old = append(old, img.id)
			}
		}
		if len(old) > 0 {
			i.Message = "deprecated by their owner: " + strings.Join(old, ", ")
		}
	}
	if spec.PlacementGroupSelector == nil {
		out = append(out, ok(ec2nc.ConditionTypePlacementGroupReady))
	} else {
		out = append(out, conditionOf(r, ec2nc.ConditionTypePlacementGroupReady, "PlacementGroupNotFound", &r.placed))
	}
	switch {
	case r.invalid != nil:
		out = append(out, no(ec2nc.ConditionTypeValidationSucceeded, "Invalid", r.invalid.Error()))
	case r.join != nil:
		out = append(out, no(ec2nc.ConditionTypeValidationSucceeded, "DependenciesNotReady", r.join.Error()))
	case r.denied != nil:
		out = append(out, no(ec2nc.ConditionTypeValidationSucceeded, r.denied.Reason, r.denied.Message))
	default:
		valid := ok(ec2nc.ConditionTypeValidationSucceeded)
		valid.Message = validation.Unused(spec, r.family)
		if r.settings.Own.Script {
			valid.Message = strings.Trim(valid.Message+"; "+unreadMessage, "; ")
		}
		out = append(out, valid)
	}
	ready := ok(status.ConditionReady)
	var because []string
	for _, c := range out {
		if c.Status == metav1.ConditionTrue || c.Reason == "Invalid" && c.Type != ec2nc.ConditionTypeValidationSucceeded {
			continue
		}
		because = append(because, c.Type+"="+string(c.Status))
		if ready.Status == metav1.ConditionTrue || c.Status == metav1.ConditionFalse {
			ready.Status, ready.Reason = c.Status, "UnhealthyDependents"
		}
	}
	ready.Message = strings.Join(because, ", ")
	if len(spec.CapacityReservationSelectorTerms) > 0 {
		// This doesn't make the class unready: everything but the reservations works.
		c := conditionOf(r, ec2nc.ConditionTypeCapacityReservationsReady, "", &r.reserved)
		if c.Status == metav1.ConditionTrue && len(r.reserved.Value) == 0 {
			c.Message = "spec.capacityReservationSelectorTerms: no active capacity reservation matches"
		}
		out = append(out, c)
	}
	return append(out, ready)
}

// shifted names the zones of subnets that nothing is launched in because of a zonal shift.
func shifted(subnets []network.Subnet, away *zonalshift.State) string {
	var zones []string
	for _, s := range subnets {
		if name := fmt.Sprintf("%s (%s)", s.Zone, s.ZoneID); away.Away(s.ZoneID) && !slices.Contains(zones, name) {
			zones = append(zones, name)
		}
	}
	if len(zones) == 0 {
		return ""
	}
	slices.Sort(zones)
	return "nothing is launched in " + strings.Join(zones, ", ") + ": the cluster's traffic is shifted away (zonal shift)"
}

func conditionOf[T any](r *resolution, kind, reason string, p *lookup.Part[T]) status.Condition {
	c := status.Condition{Type: kind}
	switch {
	case r.invalid != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "Invalid", "the class is not valid: see ValidationSucceeded"
	case p.Usable():
		c.Status, c.Reason = metav1.ConditionTrue, kind
	case p.Known:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, p.Problem.Error()
	case p.Err != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotAnswered", sdk.Summarize(p.Err)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotAsked", "not looked up yet"
	}
	return c
}

// unready returns an error with the messages of the conditions that are not True, or nil.
func unready(nc *ec2nc.EC2NodeClass, conditions []status.Condition) error {
	if !nc.DeletionTimestamp.IsZero() {
		return fmt.Errorf("EC2NodeClass %s is being deleted", nc.Name)
	}
	if conditions[len(conditions)-1].Status == metav1.ConditionTrue {
		return nil
	}
	var messages []string
	for _, c := range conditions[:len(conditions)-1] {
		if c.Status != metav1.ConditionTrue && c.Message != "" && (c.Reason != "Invalid" || c.Type == ec2nc.ConditionTypeValidationSucceeded) &&
			c.Type != ec2nc.ConditionTypeCapacityReservationsReady {
			messages = append(messages, c.Message)
		}
	}
	return fmt.Errorf("EC2NodeClass %s: %s", nc.Name, strings.Join(messages, "; "))
}
