package lifecycle

import "github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"

// faultOf returns what giving up a claim means to the spending guard: a machine fault, a fault of the pods it was bought for, or no failure
// (nil).
func (c *Controller) faultOf(l *life, reason, message string) *guard.Fault {
	switch reason {
	case reasonRegistrationTimeout:
		return &guard.Fault{Machine: true, Cause: "never registered", Message: message}
	case reasonInstanceEnded:
		if l.taken {
			return nil
		}
		return &guard.Fault{Machine: true, Cause: "instance ended", Message: message}
	case reasonNodeMissing:
		return guard.Deleted(message)
	case reasonInitTimeout:
		return c.uninitializedFault(l, message)
	}
	return nil
}

// uninitializedFault tells a startup taint or resource that a user declared and that never changed or appeared (no machine fault) from an
// instance that doesn't become Ready (a machine fault).
func (c *Controller) uninitializedFault(l *life, message string) *guard.Fault {
	if l.match.node == nil {
		return &guard.Fault{Machine: true, Cause: guard.CauseUninitialized, Message: message}
	}
	switch reason, what := c.uninitialized(l.match.node, l.claim); reason {
	case reasonStartupTaints, reasonNoResource:
		return &guard.Fault{Cause: guard.CauseUninitialized + ": " + what, Message: message}
	}
	return &guard.Fault{Machine: true, Cause: guard.CauseUninitialized, Message: message}
}
