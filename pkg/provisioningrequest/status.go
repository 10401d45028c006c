package provisioningrequest

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/bookings"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

// Reasons of conditions. Those of the Cluster Autoscaler mean the same there.
const (
	reasonAccepted    = "Accepted"
	reasonFound       = "CapacityIsFound"
	reasonProvisioned = "CapacityIsProvisioned"
	reasonNotFound    = "CapacityIsNotFound"
	reasonLaunching   = "NodesAreLaunched" // not one of the Cluster Autoscaler's: it doesn't wait for nodes
	reasonBadPods     = "FailedToCreatePods"
	reasonExpired     = "Expired"
	reasonTimeOver    = "CapacityReservationTimeExpired"
	reasonConsumed    = "CapacityBookingConsumed"
	reasonLost        = "CapacityLost" // the Cluster Autoscaler sets no CapacityRevoked
)

// answered reports whether requests of that class are answered here.
func answered(pr *provisioningv1.ProvisioningRequest) bool {
	return pr.Spec.ProvisioningClassName == provisioningv1.ClassCheckCapacity || pr.Spec.ProvisioningClassName == provisioningv1.ClassBestEffortAtomic
}

// over reports whether nothing more happens to the request.
func over(pr *provisioningv1.ProvisioningRequest) bool {
	for _, kind := range []string{provisioningv1.Failed, provisioningv1.BookingExpired, provisioningv1.CapacityRevoked} {
		if apimeta.IsStatusConditionTrue(pr.Status.Conditions, kind) {
			return true
		}
	}
	return false
}

// bookedUntil returns when the booking of a request ends whose condition Provisioned is True. It follows from the condition alone, so the next
// leader ends it at the same time.
func bookedUntil(pr *provisioningv1.ProvisioningRequest) time.Time {
	c := apimeta.FindStatusCondition(pr.Status.Conditions, provisioningv1.Provisioned)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return c.LastTransitionTime.Add(bookings.KeptFor)
}

// answer returns the request with its conditions as they are now; nil: it has them. keep: it wants capacity, or has it.
func (r *resolution) answer(pr *provisioningv1.ProvisioningRequest, s bookings.State, now time.Time) (changed *provisioningv1.ProvisioningRequest, keep bool) {
	out := pr.DeepCopy()
	set := func(kind string, is metav1.ConditionStatus, reason, message string) {
		apimeta.SetStatusCondition(&out.Status.Conditions, metav1.Condition{Type: kind, Status: is, ObservedGeneration: pr.Generation, Reason: reason,
			Message: objects.OneLine(message), LastTransitionTime: metav1.NewTime(now)})
	}
	keep = true
	end := func(kind, reason, message string) {
		set(kind, metav1.ConditionTrue, reason, message)
		keep = false
	}
	if r.problem != "" && bookedUntil(pr).IsZero() { // once capacity was reported, the pods may run and their templates may be gone: then a problem with these doesn't matter
		end(provisioningv1.Failed, reasonBadPods, fmt.Sprintf("ProvisioningRequest %s/%s: %s", pr.Namespace, pr.Name, r.problem))
		return out, keep
	}
	set(provisioningv1.Accepted, metav1.ConditionTrue, reasonAccepted, "Capacity is being looked for")
	until := bookedUntil(pr)
	switch {
	case until.IsZero() && s.Phase != bookings.Ready && now.Sub(pr.CreationTimestamp.Time) >= r.valid:
		end(provisioningv1.Failed, reasonExpired, fmt.Sprintf("There was no capacity for all of its pods within %v of its creation: %s", r.valid, s.Why))
	case until.IsZero():
		r.looking(s, set, end)
	case s.Phase == bookings.Revoked:
		end(provisioningv1.CapacityRevoked, reasonLost, s.Why)
	case s.Phase == bookings.Consumed:
		end(provisioningv1.BookingExpired, reasonConsumed, "All of its pods have come")
	case !now.Before(until):
		end(provisioningv1.BookingExpired, reasonTimeOver, fmt.Sprintf("Its capacity was kept for %v", bookings.KeptFor))
	}
	if equality.Semantic.DeepEqual(pr.Status, out.Status) {
		return nil, keep
	}
	return out, keep
}

// looking answers a request whose condition Provisioned isn't True yet.
func (r *resolution) looking(s bookings.State, set func(kind string, is metav1.ConditionStatus, reason, message string), end func(kind, reason, message string)) {
	switch {
	case s.Phase == bookings.GivenUp:
		end(provisioningv1.Failed, reasonNotFound, s.Why)
	case s.Phase == bookings.Ready && s.Bought:
		set(provisioningv1.Provisioned, metav1.ConditionTrue, reasonProvisioned, fmt.Sprintf("Nodes were launched for its pods, for which they are kept for %v", bookings.KeptFor))
	case s.Phase == bookings.Ready:
		set(provisioningv1.Provisioned, metav1.ConditionTrue, reasonFound, fmt.Sprintf("There is capacity for its pods, for which it is kept for %v", bookings.KeptFor))
	case s.Phase == bookings.Launching:
		set(provisioningv1.Provisioned, metav1.ConditionFalse, reasonLaunching, s.Why)
	case !s.Tried:
	case r.noRetry:
		end(provisioningv1.Failed, reasonNotFound, s.Why)
	default:
		set(provisioningv1.Provisioned, metav1.ConditionFalse, reasonNotFound, s.Why+"; it is tried again later")
	}
}
