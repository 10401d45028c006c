package aws

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/drift"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// Drifted compares a node's instance with what its class is resolved to now. It asks EC2 about the instance in two cases only: List hasn't returned it,
// or it seems to be in a capacity reservation that the class doesn't select; EC2 moves instances out of a reservation that ends.
func (p *Provider) Drifted(ctx context.Context, n cloudprovider.LaunchedNode) (cloudprovider.DriftReason, error) {
	fail := func(err error) (cloudprovider.DriftReason, error) {
		return "", fmt.Errorf("comparing instance %s with EC2NodeClass %s: %w", n.InstanceID, n.NodeClass, err)
	}
	name, region := n.Labels[corev1.LabelInstanceTypeStable], p.catalogue.Region()
	h, err := drift.TypeSold(region, n.Labels, name, n.Labels[corev1.LabelTopologyZone])
	switch {
	case err != nil:
		return fail(err)
	case h == nil && n.TypeCounts:
		return cloudprovider.InstanceTypeNotFound, nil
	}
	if h = region.Find(name); h == nil {
		return fail(fmt.Errorf("the region has no instance type %q", name))
	}
	r := p.classes.resolved(n.NodeClass)
	if r == nil {
		return fail(fmt.Errorf("the class is not resolved yet: %w", capacity.ErrNodeClassNotReady))
	}
	i, listed := p.seen.Get(n.InstanceID)
	switch {
	case i == nil && !listed:
		return fail(errors.New("instances have not been listed yet"))
	case i == nil:
		if i, err = p.look(ctx, n.InstanceID); err != nil {
			return "", err
		}
	}
	want := r.launches()
	if m := r.imageFor(h); m != nil {
		want.Image = m.id
	}
	image := n.ImageID
	if image == "" {
		image = i.Image
	}
	reason, err := drift.Of(want, i, image, n.Labels)
	if reason == drift.CapacityReservationDrift {
		if i, err = p.look(ctx, n.InstanceID); err != nil {
			return "", err
		}
		reason, err = drift.Of(want, i, image, n.Labels)
	}
	switch {
	case i.Ended:
		return "", ended(n.InstanceID)
	case err != nil:
		return fail(err)
	}
	return reason, nil
}

// look returns what EC2 shows of an instance now.
func (l *instances) look(ctx context.Context, id string) (*drift.Instance, error) {
	if _, err := l.Describe(ctx, id); err != nil {
		return nil, err
	}
	if i, _ := l.seen.Get(id); i != nil {
		return i, nil
	}
	return nil, ended(id)
}

// ended says that an instance is about to end: EC2 shows it without subnet and groups.
func ended(id string) error {
	return fmt.Errorf("instance %s has ended: %w", id, capacity.ErrInstanceNotFound)
}

// launches returns what an instance of the class is launched with, apart from its image.
func (r *resolved) launches() *drift.Class {
	spec := &r.class.Spec
	out := &drift.Class{
		Images: len(r.images), OwnGroups: ownTemplate(r.class) != "",
		ReservationsKnown: len(spec.CapacityReservationSelectorTerms) == 0 || r.reservedKnown,
		PlacementGroup:    r.placement.ID, PlacementKnown: spec.PlacementGroupSelector == nil || r.placement.ID != "",
	}
	for i := range r.groups {
		out.Groups = append(out.Groups, r.groups[i].ID)
	}
	for i := range r.subnets {
		out.Subnets = append(out.Subnets, r.subnets[i].ID)
	}
	for i := range r.reservations {
		out.Reservations = append(out.Reservations, r.reservations[i].ID)
	}
	return out
}
