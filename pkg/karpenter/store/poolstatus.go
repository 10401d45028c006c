package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// pool writes the status of a NodePool.
func (p *poolStatus) pool(ctx context.Context, base *karpv1.NodePool) error {
	if p.contested(base) {
		return nil
	}
	if written, err := p.noteUndeclared(ctx, base); written || err != nil {
		return err
	}
	np := base.DeepCopy()
	set := np.StatusConditions(status.WithClock(p.clock))

	if reason := karpenter.Malformed(np); reason != "" {
		set.SetFalse(karpv1.ConditionTypeValidationSucceeded, karpenter.ReasonMalformed, shorten(reason))
		set.SetUnknownWithReason(karpv1.ConditionTypeNodeClassReady, karpenter.ReasonMalformed, "the spec can't be read")
	} else {
		if errs := karpenter.ValidatePool(np, p.nodeClass.GroupKind()); len(errs) > 0 {
			set.SetFalse(karpv1.ConditionTypeValidationSucceeded, reasonValidationFailed, shorten(karpenter.JoinErrors(errs)))
		} else {
			set.SetTrue(karpv1.ConditionTypeValidationSucceeded)
		}
		p.classReady(np, set)
		lost, idle := karpenter.UnhonoredBy(np)
		honored(set, lost, idle)
	}
	p.registrations(np, set)
	if record, known := p.guardRecord(np); known {
		paused(set, record)
	}
	p.budget(np.Name, set)
	rollingOut(np, set)
	if err := p.startupTaintsDeclared(np, set); err != nil {
		return err
	}
	if err := p.architectureDeclared(np, set); err != nil {
		return err
	}
	p.count(np)

	if err := save(ctx, p, base, np, func() (any, any) { return base.Status, np.Status }); err != nil {
		return err
	}
	return p.stampPool(ctx, base)
}

// rollingOut sets the condition that tells why drifted nodes are not replaced, from what disruption records on the pool.
func rollingOut(np *karpv1.NodePool, set status.ConditionSet) {
	record, _ := karpenter.RollOutOf(np)
	if reason, why := record.Problem(); reason != "" {
		set.SetTrueWithReason(objects.ConditionRollOutPaused, reason, shorten(why))
	} else if set.Get(objects.ConditionRollOutPaused) != nil {
		_ = set.Clear(objects.ConditionRollOutPaused)
	}
}

// classReady copies the Ready condition of the pool's node class to the pool.
func (p *poolStatus) classReady(np *karpv1.NodePool, set status.ConditionSet) {
	ref := np.Spec.Template.Spec.NodeClassRef
	kind := p.nodeClass.GroupKind()
	if ref == nil || ref.GroupKind() != kind || ref.Name == "" {
		set.SetFalse(karpv1.ConditionTypeNodeClassReady, "NodeClassNotSupported", fmt.Sprintf("spec.template.spec.nodeClassRef names no %s of %s", kind.Kind, kind.Group))
		return
	}
	nc := p.class(ref.Name)
	if err := karpenter.NodeClassProblem(np.Name, kind.Kind, ref.Name, nc); err != nil {
		reason := reasonClassNotFound
		switch {
		case nc != nil && karpenter.Malformed(nc) != "":
			reason = karpenter.ReasonMalformed
		case nc != nil && nc.GetDeletionTimestamp().IsZero():
			reason = conditionReason(karpenter.ForeignNotReady(nc).Reason, reasonClassNotReady)
		case nc != nil:
			reason = "NodeClassTerminating"
		}
		set.SetFalse(karpv1.ConditionTypeNodeClassReady, reason, shorten(err.Error()))
		return
	}
	ready := nc.StatusConditions(status.WithObservedOnly()).Get(status.ConditionReady)
	switch {
	case ready.IsTrue():
		set.SetTrue(karpv1.ConditionTypeNodeClassReady)
	case ready.IsFalse():
		set.SetFalse(karpv1.ConditionTypeNodeClassReady, conditionReason(ready.Reason, reasonClassNotReady), shorten(fmt.Sprintf("%s %s: %s", kind.Kind, ref.Name, whatFailed(nc, ready))))
	default:
		set.SetFalse(karpv1.ConditionTypeNodeClassReady, reasonClassUnknown, fmt.Sprintf("%s %s has not been resolved yet", kind.Kind, ref.Name))
	}
}

// whatFailed returns the messages of the class's conditions that are False, which explain more than Ready does.
func whatFailed(nc status.Object, ready *status.Condition) string {
	var out []string
	for _, c := range nc.GetConditions() {
		if c.IsFalse() && c.Type != status.ConditionReady {
			out = append(out, fmt.Sprintf("%s is False (%s): %s", c.Type, c.Reason, c.Message))
		}
	}
	if len(out) == 0 {
		return ready.Message
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// count sums up the capacity of the pool's launched claims. A claim that is not launched has none yet; if it counted, a failed launch
// would make the numbers jump.
func (p *poolStatus) count(np *karpv1.NodePool) {
	total := capacity.Resources{corev1.ResourceCPU: 0, corev1.ResourceMemory: 0, corev1.ResourcePods: 0, corev1.ResourceEphemeralStorage: 0, capacity.ResourceNodes: 0}
	p.mu.RLock()
	total.Add(p.used.Has(np.Name), 1)
	p.mu.RUnlock()
	nodes := total[capacity.ResourceNodes]
	np.Status.Resources, np.Status.Nodes = total.List(), &nodes
}
