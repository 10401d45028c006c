package bookings

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// own turns the placements of a plan into ones of the request: its pods don't exist, so no pod gets an event or is waited for. It returns
// why pods were refused.
func own(plan *capacity.Plan, request types.UID) (why string) {
	for i := range plan.Placements {
		pl := &plan.Placements[i]
		pl.Owner, pl.Pod = request, capacity.PodRef{}
	}
	for _, r := range plan.Refused {
		if why = r.Message; why != "" {
			return why
		}
	}
	return ""
}

// settled closes the nodes of a view that are not initialized: their capacity isn't there yet.
func settled(v *provisioning.View) {
	for i, n := range v.Nodes {
		if n.InFlight {
			shut := *n
			shut.Closed = true
			v.Nodes[i] = &shut
		}
	}
}

func noPod(types.UID) *corev1.Pod { return nil }
