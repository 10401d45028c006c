package karpenter

import (
	"context"
	"fmt"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reasons why nothing is launched with a class.
const (
	reasonClassNotFound = "NodeClassNotFound"
	reasonClassNotReady = "NodeClassNotReady"
)

// summedUp is the reason of a Ready that sums up the conditions beside it, as we write it and as Karpenter does (operatorpkg).
const summedUp = "UnhealthyDependents"

// foreignNotReady is the Ready condition of a class when another controller says there that it is not ready: it is False, not for an earlier
// generation of the spec, and doesn't sum up the conditions beside it. Nil: there is no such thing.
//
// What we say ourselves must not hold us up. Until it is written it is out of date, and the cloud is asked anyway.
func foreignNotReady(nc *ec2nc.EC2NodeClass) *status.Condition {
	for i := range nc.Status.Conditions {
		c := &nc.Status.Conditions[i]
		if c.Type == status.ConditionReady && c.IsFalse() && c.Reason != summedUp && (c.ObservedGeneration == 0 || c.ObservedGeneration == nc.Generation) {
			return c
		}
	}
	return nil
}

// keepForeign leaves the Ready condition to the controller that says the class is not ready.
func keepForeign(nc *ec2nc.EC2NodeClass, foreign *status.Condition) {
	if foreign == nil {
		return
	}
	for i := range nc.Status.Conditions {
		if nc.Status.Conditions[i].Type == status.ConditionReady {
			nc.Status.Conditions[i] = *foreign
		}
	}
}

// sameReadiness says that both versions can be used, as far as other controllers say, or neither.
func sameReadiness(a, b *ec2nc.EC2NodeClass) bool {
	return (foreignNotReady(a) == nil) == (foreignNotReady(b) == nil)
}

func notReadyText(name string, c *status.Condition) string {
	return fmt.Sprintf("EC2NodeClass %s: another controller says that it is not ready (%s): %s", name, c.Reason, c.Message)
}

// NodeClassEnds asks the API server, past every cache, whether a claim that refers to the class ends, as it does in Karpenter: there is no
// such class, or another controller says that it is not ready. Without a reason it doesn't.
func (s *Store) NodeClassEnds(ctx context.Context, name string) (reason, why string, err error) {
	nc := s.class(name)
	if !derived(name) {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		nc = &ec2nc.EC2NodeClass{}
		if err := s.live.Get(ctx, client.ObjectKey{Name: name}, nc); apierrors.IsNotFound(err) {
			nc = nil
		} else if err != nil {
			return "", "", fmt.Errorf("getting EC2NodeClass %s: %w", name, err)
		}
	}
	if nc == nil {
		return reasonClassNotFound, fmt.Sprintf("there is no EC2NodeClass %s", name), nil
	}
	if c := foreignNotReady(nc); c != nil {
		return reasonClassNotReady, notReadyText(name, c), nil
	}
	return "", "", nil
}
