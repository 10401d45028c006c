package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/bookings"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest"
)

// answerRequests builds the controller that answers ProvisioningRequests, and connects it to Bookings, which books their capacity. Pods of other
// schedulers can't use booked capacity, so requests for them are refused.
func (p *parts) answerRequests(d *dovetail, profiles []profile, admit func(*corev1.Pod)) {
	ours := names(profiles)
	p.requests = provisioningrequest.New(provisioningrequest.Config{Kube: p.client, Store: p.store, Bookings: p.launch.Bookings, Clock: d.clock, Admit: admit,
		Hold: p.external.Hold, Several: profiles[0].args.Name != "", Ours: func(scheduler string) bool { return slices.Contains(ours, scheduler) },
		Class: func(pod *corev1.Pod) (*capacity.Class, error) {
			_, class, err := d.classes.Successor(pod)
			return class, err
		},
	})
	p.store.OnRequest(p.requests.Changed)
	p.launch.Bookings.OnChange(p.requests.Looked)
}

// onceBooked wraps neededBy: known is false for every node until this process has reserved again the capacity that an earlier process had booked
// (reserved for pods of ProvisioningRequests).
func onceBooked(b *bookings.Bookings, neededBy func(node string) (needed, known bool)) func(node string) (needed, known bool) {
	return func(node string) (needed, known bool) {
		needed, known = neededBy(node)
		return needed, known && b.Known()
	}
}
