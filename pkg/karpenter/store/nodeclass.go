package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// SetNodeClassStatus writes the status that a node class was resolved to. The status is for the given generation of the spec: when the
// object has a newer generation, or is deleted, nothing is written, because the class will be resolved again. Only a difference is
// written.
//
// While writes are paused, the store keeps the status and writes it afterwards.
func (s *Store) SetNodeClassStatus(ctx context.Context, of status.Object) error {
	name := of.GetName()
	if karpenter.Derived(name) {
		return s.setDerivedClassStatus(of)
	}
	if s.sources.Hold() != nil || s.keeps(name) { // what is kept is older: it must not be written after this
		s.later(of)
		return nil
	}
	return s.writeClassStatus(ctx, of)
}

func (s *Store) writeClassStatus(ctx context.Context, of status.Object) error {
	name, ask := of.GetName(), false
	err := onConflictAgain(func() error {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		base := s.class(name)
		if base == nil || ask {
			base = s.nodeClass.New()
			if err := s.live.Get(ctx, client.ObjectKey{Name: name}, base); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		ask = true
		if base.GetGeneration() != of.GetGeneration() {
			return nil
		}
		nc := copyOf(base)
		s.resolve(nc, of)
		if equality.Semantic.DeepEqual(base, nc) {
			return nil
		}
		err := s.live.Status().Patch(ctx, nc, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", s.nodeClass.Kind, name, err)
	}
	return nil
}

// resolve gives nc the status that it was resolved to. Conditions are merged by type, so that a transition time is kept as long as
// nothing changes. Conditions of other controllers stay, including a Ready that they have set to False. Otherwise Ready follows from the
// conditions it depends on.
func (s *Store) resolve(nc, resolved status.Object) {
	before := nc.GetConditions()
	defer keepForeign(nc, karpenter.ForeignNotReady(copyOf(nc)))
	s.nodeClass.Resolve(nc, resolved)
	conditions := nc.GetConditions()
	nc.SetConditions(before)
	set := nc.StatusConditions(status.WithClock(s.clock))
	for _, c := range conditions {
		if c.Type != status.ConditionReady {
			c.Reason = conditionReason(c.Reason, c.Type[strings.LastIndexByte(c.Type, '/')+1:])
			set.Set(c)
		}
	}
}
