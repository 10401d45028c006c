package karpenter

import (
	"context"
	"fmt"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetNodeClassStatus writes the resolved status of an EC2NodeClass. The status is for the given generation of the spec: when the
// object has a newer generation, or is deleted, nothing is written, because the class will be resolved again. Only a difference is
// written.
//
// While writes are paused, the store keeps the status and writes it afterwards.
func (s *Store) SetNodeClassStatus(ctx context.Context, name string, generation int64, st ec2nc.EC2NodeClassStatus) error {
	if derived(name) {
		s.setDerivedClassStatus(name, generation, st)
		return nil
	}
	if s.hold() != "" {
		s.later(name, generation, st)
		return nil
	}
	ask := false
	err := onConflictAgain(func() error {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		base := s.class(name)
		if base == nil || ask {
			base = &ec2nc.EC2NodeClass{}
			if err := s.live.Get(ctx, client.ObjectKey{Name: name}, base); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		ask = true
		if base.Generation != generation {
			return nil
		}
		nc := base.DeepCopy()
		resolved(nc, st, status.WithClock(s.clock))
		if equality.Semantic.DeepEqual(base.Status, nc.Status) {
			return nil
		}
		err := s.live.Status().Patch(ctx, nc, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("writing the status of EC2NodeClass %s: %w", name, err)
	}
	return nil
}

// resolved merges st into nc's status. Conditions are merged by type, so that a transition time is kept as long as nothing changes.
// Conditions of other controllers stay, including a Ready that they have set to False. Otherwise Ready follows from the conditions it
// depends on. The provider does not support placement groups yet, so a class that selects none is ready in that respect.
func resolved(nc *ec2nc.EC2NodeClass, st ec2nc.EC2NodeClassStatus, clock status.ForOption) {
	conditions := nc.Status.Conditions
	defer keepForeign(nc, foreignNotReady(nc.DeepCopy()))
	nc.Status = *st.DeepCopy()
	nc.Status.Conditions = conditions
	set := nc.StatusConditions(clock)
	for _, c := range st.Conditions {
		if c.Type != status.ConditionReady {
			c.Reason = conditionReason(c.Reason, c.Type[strings.LastIndexByte(c.Type, '/')+1:])
			set.Set(c)
		}
	}
	told := func(condition string) bool {
		for _, c := range st.Conditions {
			if c.Type == condition {
				return true
			}
		}
		return false
	}
	if !told(ec2nc.ConditionTypePlacementGroupReady) {
		if nc.Spec.PlacementGroupSelector == nil {
			set.SetTrue(ec2nc.ConditionTypePlacementGroupReady)
		} else {
			set.SetFalse(ec2nc.ConditionTypePlacementGroupReady, "NotSupported", "spec.placementGroupSelector: placement groups are not supported yet")
		}
	}
}
