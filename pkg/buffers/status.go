package buffers

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/buffers"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Reasons of the condition Provisioning, as Karpenter has them.
const (
	reasonFits     = "FitsExistingCapacity"
	reasonRequires = "RequiresNewCapacity"
	reasonNotReady = "NotReadyForProvisioning"
	reasonEmpty    = "BufferEmpty"
)

// status returns the buffer with its status as it is now; nil: it has that status. state nil: its chunks have not been looked at yet.
func (r *resolution) status(b *autoscalingv1beta1.CapacityBuffer, state *ledger.BufferState, why string, now time.Time) *autoscalingv1beta1.CapacityBuffer {
	if r.foreign && apimeta.FindStatusCondition(b.Status.Conditions, autoscalingv1beta1.ReadyForProvisioningCondition) != nil {
		return nil // another controller has set the condition, or Dovetail did before
	}
	out := b.DeepCopy()
	set := func(kind string, is metav1.ConditionStatus, reason, message string) {
		apimeta.SetStatusCondition(&out.Status.Conditions, metav1.Condition{Type: kind, Status: is, ObservedGeneration: b.Generation, Reason: reason,
			Message: objects.OneLine(message), LastTransitionTime: metav1.NewTime(now)})
	}
	out.Status.ProvisioningStrategy = b.Spec.ProvisioningStrategy
	out.Status.PodTemplateRef, out.Status.PodTemplateGeneration = nil, nil
	if r.class == nil {
		out.Status.Replicas = nil
		set(autoscalingv1beta1.ReadyForProvisioningCondition, metav1.ConditionFalse, r.reason, r.problem)
		set(autoscalingv1beta1.ProvisioningCondition, metav1.ConditionFalse, reasonNotReady, "Buffer is not ReadyForProvisioning")
	} else {
		if r.template != "" {
			out.Status.PodTemplateRef, out.Status.PodTemplateGeneration = &autoscalingv1beta1.LocalObjectRef{Name: r.template}, &r.generation
		}
		out.Status.Replicas = &r.chunks
		message := "Pod template resolved"
		if r.capped {
			message += fmt.Sprintf("; a buffer has at most %d chunks", buffers.MostChunks)
		}
		set(autoscalingv1beta1.ReadyForProvisioningCondition, metav1.ConditionTrue, reasonResolved, message)
		switch {
		case r.chunks == 0:
			set(autoscalingv1beta1.ProvisioningCondition, metav1.ConditionFalse, reasonEmpty, "Buffer has zero desired replicas")
		case state == nil:
		case state.Ready == state.Chunks:
			set(autoscalingv1beta1.ProvisioningCondition, metav1.ConditionTrue, reasonFits, fmt.Sprintf("All %d chunks have capacity on initialized nodes", state.Chunks))
		default:
			set(autoscalingv1beta1.ProvisioningCondition, metav1.ConditionFalse, reasonRequires, lacking(state, why, now))
		}
	}
	if equality.Semantic.DeepEqual(b.Status, out.Status) {
		return nil
	}
	return out
}

// lacking says what chunks wait for.
func lacking(s *ledger.BufferState, why string, now time.Time) string {
	text := fmt.Sprintf("%d of %d chunks have capacity on initialized nodes", s.Ready, s.Chunks)
	if s.Launching > 0 {
		text += fmt.Sprintf(", %d have it on nodes that are being launched", s.Launching)
	}
	if s.Missing() == 0 {
		return text
	}
	text += fmt.Sprintf(", %d have none", s.Missing())
	switch {
	case s.Misfits > 0 && now.Before(s.Next):
		text += fmt.Sprintf(": the last node that was launched for them has less capacity than planned; no other one is launched before %s", s.Next.UTC().Format(time.RFC3339))
	case why != "":
		text += ": " + why
	}
	return text
}
