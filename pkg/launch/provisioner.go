package launch

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// provisioner is the planner's goroutine: it waits for demand and serves it.
type provisioner struct {
	rounds      *Rounds
	prober      *prober
	relocation  *relocation
	offers      *offers
	daemonRooms *daemonRooms
	recovery    *recovery
	triggers    *Triggers
	clock       clock.WithTicker
	// A burst is planned when no pod has arrived for batchIdle, or at the latest batchMax after its first pod.
	batchIdle, batchMax time.Duration
}

// servePlans makes a plan whenever there is something to plan for. A panic that no step has caught leaves demand unchanged.
func (p *provisioner) servePlans(ctx context.Context) {
	p.triggers.replan() // for the demand that a panic has left
	for p.settle(ctx) {
		p.daemonRooms.keepDaemonRoom(ctx)
		p.offers.offer(ctx)
		p.recovery.readopt(ctx)
		p.rounds.round(ctx)
		p.prober.probe(ctx)
		p.relocation.relocate(ctx)
	}
}

// settle waits for demand and then for the burst to end. It returns false when ctx has ended.
func (p *provisioner) settle(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.triggers.plan:
	}
	limit := p.clock.NewTimer(p.batchMax)
	defer limit.Stop()
	for {
		idle := p.clock.NewTimer(p.batchIdle)
		select {
		case <-ctx.Done():
			idle.Stop()
			return false
		case <-p.triggers.plan:
			idle.Stop()
		case <-idle.C():
			return true
		case <-limit.C():
			idle.Stop()
			return true
		}
	}
}
