package provisioning

import (
	"context"
	"time"

	"k8s.io/utils/clock"
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
	clock      clock.WithTicker
	// A burst is planned when it has settled, or at the latest batchMax after its first pod.
	batchIdle, batchMax time.Duration
	settled             func(quiet, window time.Duration) bool
	bookings            func(context.Context)
}

// OnBookings sets a func that plans for ProvisioningRequests after pods. Call it before anything runs.
func (p *Provisioner) OnBookings(f func(context.Context)) { p.bookings = f }

// Serve makes a plan whenever there is something to plan for. A panic that no step has caught leaves demand unchanged.
func (p *Provisioner) Serve(ctx context.Context) {
	p.triggers.Replan() // for the demand that a panic has left
	for p.settle(ctx) {
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

// settle waits for demand and then for the burst to end. It returns false when ctx has ended.
func (p *Provisioner) settle(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.triggers.plan:
	}
	limit := p.clock.NewTimer(p.batchMax)
	defer limit.Stop()
	part := max(p.batchIdle/3, 1)
	for quiet := time.Duration(0); ; {
		idle := p.clock.NewTimer(part)
		select {
		case <-ctx.Done():
			idle.Stop()
			return false
		case <-p.triggers.plan:
			idle.Stop()
			quiet = 0
		case <-idle.C():
			if quiet += part; p.settled(quiet, 3*part) {
				return true
			}
		case <-limit.C():
			idle.Stop()
			return true
		}
	}
}
