package karpenter

import (
	"context"
	"fmt"

	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reasons for not launching anything with a class.
const (
	reasonClassNotFound = "NodeClassNotFound"
	reasonClassNotReady = "NodeClassNotReady"
)

// summedUp is the reason of a Ready condition that summarizes the conditions beside it, as both we and Karpenter (operatorpkg) write
// it.
const summedUp = "UnhealthyDependents"

// foreignNotReady returns the Ready condition of a class when another controller has set it to not ready: it is False, doesn't belong
// to an earlier generation of the spec, and doesn't summarize the conditions beside it. It returns nil if there is no such condition.
//
// Our own Ready condition must not stop us: until we have updated it, it is out of date, and the cloud is asked in any case.
func foreignNotReady(nc status.Object) *status.Condition {
	conditions := nc.GetConditions()
	for i := range conditions {
		c := &conditions[i]
		if c.Type == status.ConditionReady && c.IsFalse() && c.Reason != summedUp && (c.ObservedGeneration == 0 || c.ObservedGeneration == nc.GetGeneration()) {
			return c
		}
	}
	return nil
}

// keepForeign leaves the Ready condition as another controller has set it, when that controller reports the class as not ready.
func keepForeign(nc status.Object, foreign *status.Condition) {
	if foreign == nil {
		return
	}
	conditions := nc.GetConditions()
	for i := range conditions {
		if conditions[i].Type == status.ConditionReady {
			conditions[i] = *foreign
		}
	}
	nc.SetConditions(conditions)
}

// sameReadiness reports whether other controllers' Ready conditions allow the use of both versions, or of neither.
func sameReadiness(a, b status.Object) bool {
	return (foreignNotReady(a) == nil) == (foreignNotReady(b) == nil)
}

func notReadyText(kind, name string, c *status.Condition) string {
	return fmt.Sprintf("%s %s: another controller reports that it is not ready (%s): %s", kind, name, c.Reason, c.Message)
}

// NodeClassEnds asks the API server, bypassing every cache, whether a claim that refers to the class must be deleted, as Karpenter
// does: because the class doesn't exist, or because another controller reports it as not ready. An empty reason means that the claim
// stays.
func (s *Store) NodeClassEnds(ctx context.Context, name string) (reason, why string, err error) {
	nc := s.class(name)
	if !derived(name) {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		nc = s.nodeClass.New()
		if err := s.live.Get(ctx, client.ObjectKey{Name: name}, nc); apierrors.IsNotFound(err) {
			nc = nil
		} else if err != nil {
			return "", "", fmt.Errorf("getting %s %s: %w", s.nodeClass.Kind, name, err)
		}
	}
	if nc == nil {
		return reasonClassNotFound, fmt.Sprintf("there is no %s %s", s.nodeClass.Kind, name), nil
	}
	if c := foreignNotReady(nc); c != nil {
		return reasonClassNotReady, notReadyText(s.nodeClass.Kind, name, c), nil
	}
	return "", "", nil
}
