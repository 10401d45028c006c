package main

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/bookings"
	"github.com/dovetail-scheduler/dovetail/pkg/buffers"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// keepBuffers builds the controller that reads CapacityBuffers, and connects it to provisioning.Chunks, which keeps their capacity free in pieces
// of one pod's size (chunks).
func (p *parts) keepBuffers(d *dovetail, profiles []profile, admit func(*corev1.Pod)) {
	ours := append(names(profiles), provisionFor(profiles)...)
	p.buffers = buffers.New(buffers.Config{Kube: p.client, Store: p.store, Chunks: p.launch.Chunks, Clock: d.clock, Admit: admit, Hold: p.external.Hold,
		Ours: func(scheduler string) bool { return slices.Contains(ours, scheduler) }, Several: profiles[0].args.Name != "",
		Class: func(pod *corev1.Pod) (*capacity.Class, error) {
			_, class, err := d.classes.Successor(pod)
			return class, err
		},
	})
	p.store.OnBuffer(p.buffers.Changed)
	p.launch.Chunks.OnChange(p.buffers.Reported)
}

// fence is the ledger as the controller that ends nodes uses it.
type fence struct{ *reservations.Ledger }

// GiveUpChunks gives up the capacity that is kept free on a node for CapacityBuffers.
func (f fence) GiveUpChunks(node string) {
	f.Step(func(l *ledger.Ledger, _ time.Time) { l.GiveUpChunks(node) })
}

// neededBy returns a func that reports whether a node is needed for CapacityBuffers although it may have no pods, and whether that is known yet.
func neededBy(c *provisioning.Chunks) func(node string) (needed, known bool) {
	return func(node string) (needed, known bool) {
		needed, known, _ = c.Need(node)
		return needed, known
	}
}

// quietNodes answers when a node last had a pod event. A pod event is also the time until which capacity was kept there for a CapacityBuffer or a
// ProvisioningRequest, so that a node counts as unused only from then on.
type quietNodes struct {
	disruption.Nodes
	chunks   *provisioning.Chunks
	bookings *bookings.Bookings
}

// LastPodEvent returns the last time a pod was bound to the node or left it, or capacity for CapacityBuffers or ProvisioningRequests was kept
// there.
func (n quietNodes) LastPodEvent(node string) time.Time {
	at := n.Nodes.LastPodEvent(node)
	_, _, kept := n.chunks.Need(node)
	for _, t := range []time.Time{kept, n.bookings.Left(node)} {
		if t.After(at) {
			at = t
		}
	}
	return at
}
