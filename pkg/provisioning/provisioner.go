package provisioning

import (
	"context"

	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/burst"
)

// Provisioner is the planner's goroutine: it waits for demand and serves it.
type Provisioner struct {
	rounds     *Rounds
	probes     *Probes
	relocation *Relocation
	moves      *Consolidation
	chunks     *Chunks
	offers     *offers
	daemons    *DaemonCapacity
	recovery   Recovery
	triggers   *Triggers
	window     *burst.Window
	bookings   func(context.Context)
}

// OnBookings sets a func that plans for ProvisioningRequests after pods. Call it before anything runs.
func (p *Provisioner) OnBookings(f func(context.Context)) { p.bookings = f }

// Serve makes a plan whenever there is something to plan for. A panic that no step has caught leaves demand unchanged.
func (p *Provisioner) Serve(ctx context.Context) {
	p.triggers.Replan() // for the demand that a panic has left
	for p.window.Wait(ctx, p.triggers.plan) {
		p.daemons.keep(ctx)
		p.offers.offer(ctx)
		p.recovery.Readopt(ctx)
		p.rounds.Round(ctx)
		p.probes.Probe(ctx)
		p.relocation.Relocate(ctx)
		if p.bookings != nil {
			p.bookings(ctx)
		}
		p.chunks.keep(ctx)
		p.moves.Consolidate(ctx)
	}
}
