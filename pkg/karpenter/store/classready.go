package store

import (
	"context"
	"fmt"

	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// Reasons for not launching anything with a class.
const (
	reasonClassNotFound = "NodeClassNotFound"
	reasonClassNotReady = "NodeClassNotReady"
)

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
	return (karpenter.ForeignNotReady(a) == nil) == (karpenter.ForeignNotReady(b) == nil)
}

// NodeClassEnds asks the API server, bypassing every cache, whether a claim that refers to the class must be deleted, as Karpenter
// does: because the class doesn't exist, or because another controller reports it as not ready. An empty reason means that the claim
// stays.
func (s *Store) NodeClassEnds(ctx context.Context, name string) (reason, why string, err error) {
	nc := s.class(name)
	if !karpenter.Derived(name) {
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
	if c := karpenter.ForeignNotReady(nc); c != nil {
		return reasonClassNotReady, karpenter.NotReadyText(s.nodeClass.Kind, name, c), nil
	}
	return "", "", nil
}
