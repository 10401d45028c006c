package karpenter

import (
	"errors"
	"fmt"

	"github.com/awslabs/operatorpkg/status"
)

// NodeClassProblem returns why the node class of a pool can't be used, as far as the API objects tell. nc is nil when there is none.
func NodeClassProblem(pool, kind, name string, nc status.Object) error {
	switch {
	case nc == nil:
		return fmt.Errorf("NodePool %s: spec.template.spec.nodeClassRef.name: there is no %s %s", pool, kind, name)
	case Malformed(nc) != "":
		return fmt.Errorf("%s %s: %s", kind, name, Malformed(nc))
	case !nc.GetDeletionTimestamp().IsZero():
		return fmt.Errorf("%s %s is being deleted", kind, name)
	}
	if c := ForeignNotReady(nc); c != nil {
		return errors.New(NotReadyText(kind, name, c))
	}
	return nil
}

// summedUp is the reason of a Ready condition that summarizes the conditions beside it, as both we and Karpenter (operatorpkg) write
// it.
const summedUp = "UnhealthyDependents"

// ForeignNotReady returns the Ready condition of a class when another controller has set it to not ready: it is False, doesn't belong
// to an earlier generation of the spec, and doesn't summarize the conditions beside it. It returns nil if there is no such condition.
//
// Our own Ready condition must not stop us: until we have updated it, it is out of date, and the cloud is asked in any case.
func ForeignNotReady(nc status.Object) *status.Condition {
	conditions := nc.GetConditions()
	for i := range conditions {
		c := &conditions[i]
		if c.Type == status.ConditionReady && c.IsFalse() && c.Reason != summedUp && (c.ObservedGeneration == 0 || c.ObservedGeneration == nc.GetGeneration()) {
			return c
		}
	}
	return nil
}

// NotReadyText returns the message about a class that another controller reports as not ready.
func NotReadyText(kind, name string, c *status.Condition) string {
	return fmt.Sprintf("%s %s: another controller reports that it is not ready (%s): %s", kind, name, c.Reason, c.Message)
}
