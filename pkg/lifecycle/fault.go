package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// surrender gives up claims, and says what that means to the spending guard.
type surrender struct {
	nodes         *nodes
	claims        claims
	reports       *reports
	recorder      recorder
	requirements  requirements
	notRegistered func(claim *karpv1.NodeClaim, message string) // tells the pool and the cloud that a claim didn't become a node in time
	givingUp      func(claim, why string, fault *guard.Fault)   // tells waiting pods and the spending guard why a claim is given up
}

// giveUp annotates the Node, so that the scheduler sees all of its taints, and deletes the claim; termination does the rest.
func (s *surrender) giveUp(ctx context.Context, l *life, reason, message string) error {
	node := l.match.node
	if node != nil && node.Labels[karpv1.NodeInitializedLabelKey] != "true" {
		_, err := s.nodes.patch(ctx, node.Name, node.UID, func(n *corev1.Node) {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[objects.AnnotationFailed] = message
		})
		if err != nil && !gone(err) {
			return err
		}
	}
	s.givingUp(l.claim.Name, message, s.faultOf(l, reason, message))
	if s.reports.first(l.claim.Name, givingUpReported) {
		s.recorder.event(l.claim, node, corev1.EventTypeWarning, reason, "Delete", "giving up NodeClaim %s: %s", l.claim.Name, message)
	}
	if err := s.claims.end(ctx, l.claim); err != nil {
		return err
	}
	if !s.reports.first(l.claim.Name, claimGivenUp) {
		return nil // the cache doesn't show the deletion yet
	}
	disruptions.WithLabelValues(pool(l.claim), reason).Inc()
	karpentermetrics.Disrupted(seriesOf(l.claim), reason)
	if reason == reasonLaunchTimeout || reason == reasonRegistrationTimeout {
		s.notRegistered(l.claim, message)
	}
	klog.FromContext(ctx).Info("Gave up a NodeClaim", "reason", reason, "message", message, "instance", capacity.InstanceID(l.claim.Status.ProviderID))
	return nil
}

// faultOf returns what giving up a claim means to the spending guard: a machine fault, a fault of the pods it was bought for, or no failure
// (nil).
func (s *surrender) faultOf(l *life, reason, message string) *guard.Fault {
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
		return s.uninitializedFault(l, message)
	}
	return nil
}

// uninitializedFault returns the fault of a node that wasn't initialized in time. It is a machine fault, unless a startup taint that a user
// declared was never removed, or a requested resource never appeared: then it is a pod fault.
func (s *surrender) uninitializedFault(l *life, message string) *guard.Fault {
	if l.match.node == nil {
		return &guard.Fault{Machine: true, Cause: guard.CauseUninitialized, Message: message}
	}
	if r := s.requirements.missing(l.match.node, l.claim); r != nil && (r.reason == reasonStartupTaints || r.reason == reasonNoResource) {
		return &guard.Fault{Cause: guard.CauseUninitialized + ": " + r.message, Message: message}
	}
	return &guard.Fault{Machine: true, Cause: guard.CauseUninitialized, Message: message}
}
