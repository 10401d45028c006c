package disruption

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Annotations that keep a node from being ended by decision of Dovetail, beside karpenter.sh/do-not-disrupt and objects.AnnotationPauseDisruption.
const (
	// On a Node, "true": it isn't ended to save money. The older name, and the other autoscaler's.
	annotationDoNotConsolidate  = "karpenter.sh/do-not-consolidate"
	annotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// Disruption reasons that budgets do not limit: these nodes have to end.
const (
	reasonExpired   = "Expired"
	reasonBlockEnds = "CapacityBlockEnds"
)

// ReasonInstanceEnded is the reason that Config.Ending gets when an instance ends that Dovetail has not terminated.
const ReasonInstanceEnded = "InstanceEnded"

// sayEvery is how often the decision about a claim is reported again in a dry run.
const sayEvery = time.Hour

// paused reports whether the pool keeps all of its nodes for now. A user who sets the annotation wants them kept, so any value counts
// except one that means false.
func paused(m *machine) bool {
	if m.pool == nil {
		return false
	}
	value, ok := m.pool.Annotations[objects.AnnotationPauseDisruption]
	yes, err := strconv.ParseBool(value)
	return ok && (err != nil || yes)
}

// consolidationBlockers returns the annotations by which a node refuses consolidation. A pool with the policy WhenEmpty doesn't
// consolidate, and the older name never prevented the termination of empty nodes.
func consolidationBlockers(m *machine) []string {
	out := []string{annotationScaleDownDisabled}
	if m.pool.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationPolicyWhenEmpty {
		out = append(out, annotationDoNotConsolidate)
	}
	return out
}

// protected returns why a node may not be disrupted voluntarily; empty: it may. DaemonSet pods and static pods may protect it, too.
func protected(m *machine, bound []*corev1.Pod, now time.Time) string {
	if m.node.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" || m.claim.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		return "disruption is blocked by the annotation " + karpv1.DoNotDisruptAnnotationKey
	}
	for _, key := range consolidationBlockers(m) {
		if m.node.Annotations[key] == "true" {
			return "disruption is blocked by the annotation " + key
		}
	}
	if i := slices.IndexFunc(bound, func(p *corev1.Pod) bool {
		yes, _ := pods.DoNotDisrupt(p, now)
		return yes && !objects.Ended(p) && !pods.Terminating(p)
	}); i >= 0 {
		return fmt.Sprintf("disruption is blocked by pod %s, which asks not to be disrupted", klog.KObj(bound[i]))
	}
	return ""
}

// braked reports whether too many nodes were terminated within the last minute, and records an event on the claim if so.
func (c *Controller) braked(m *machine) bool {
	wait := c.brake.Wait(c.clock.Now())
	if wait > 0 {
		c.recorder.Eventf(m.claim, nil, corev1.EventTypeWarning, reasonBlocked, "Disrupt",
			"%d nodes have been terminated within a minute (maxTerminationsPerMinute): this one has to wait", c.brake.PerMinute())
	}
	return wait > 0
}

// dry reports whether this is a dry run, and if so that the node would be terminated.
func (c *Controller) dry(ctx context.Context, m *machine, reason, why string) bool {
	if !c.dryRun {
		return false
	}
	now, key := c.clock.Now(), string(m.claim.UID)+" "+reason
	if last, ok := c.said[key]; ok && now.Sub(last) < sayEvery {
		return true
	}
	c.said[key] = now
	c.tell(m, reasonDryRun, "Would terminate the node: "+why)
	klog.FromContext(ctx).Info("Dry run: would terminate a node", "nodeClaim", m.claim.Name, "node", m.claim.Status.NodeName, "reason", reason, "message", why)
	return true
}

// end deletes a claim. After an error it may be deleted all the same.
func (c *Controller) end(ctx context.Context, m *machine, reason, why string) error {
	if c.ending != nil {
		said := reason
		if reason == reasonInterrupted && instanceEnded(m) {
			said = ReasonInstanceEnded
		}
		c.ending(ctx, m.claim.Name, said)
	}
	if err := c.claims.Delete(ctx, m.claim, client.Preconditions{UID: &m.claim.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeClaim %s: %w", m.claim.Name, err)
	}
	c.going[string(m.claim.UID)] = true
	c.tell(m, reasonTerminating, "Terminating the node: "+why)
	decisions.WithLabelValues(m.claim.Labels[karpv1.NodePoolLabelKey], reason).Inc()
	klog.FromContext(ctx).V(2).Info("Terminating a node", "nodeClaim", m.claim.Name, "node", m.claim.Status.NodeName, "reason", reason, "message", why)
	return nil
}

// tell records an event on claim and Node.
func (c *Controller) tell(m *machine, reason, note string) {
	c.recorder.Eventf(m.claim, nil, corev1.EventTypeNormal, reason, "Disrupt", "%s", note)
	if m.node != nil {
		c.recorder.Eventf(m.node, nil, corev1.EventTypeNormal, reason, "Disrupt", "%s", note)
	}
}
