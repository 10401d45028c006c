package provisioning

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Effects carries out what the ledger asks for, and looks every second at what may have become due. It has a goroutine of its own.
type Effects struct {
	reservations *reservations.Ledger
	pending      *pending.Pods
	queue        Queue
	events       Recorder
	verdicts     *Verdicts
	launches     Launches
	tainted      func(ledger.Tainted)
	lookAtLog    func()
	triggers     *Triggers
	relief       *limits.Relief
	clock        clock.WithTicker
	passes       *passes
}

// Serve carries out the ledger's effects as they arise.
func (ef *Effects) Serve(ctx context.Context) {
	tick := ef.clock.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ef.reservations.Wake():
		case <-ef.triggers.changed:
			ef.triggers.gangsAnew.Store(true)
			ef.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Changed() })
			ef.inPieces((*ledger.Ledger).TickPods)
		case <-tick.C():
			ef.lookAtLog()
			ef.relieve()
			ef.inPieces((*ledger.Ledger).TickPods)
			ef.inPieces((*ledger.Ledger).TickClasses)
			ef.inPieces((*ledger.Ledger).TickNodes)
			ef.later()
			ef.pending.Reconcile()
			if ef.pending.Classes.Devices().Tend() {
				ef.triggers.Changed()
			}
			ef.verdicts.Tend(ctx)
			if ef.passes.waiting() || ef.triggers.chunks.Load() { // a consolidation pass, or chunks, wait because demand came first
				ef.triggers.Replan()
			}
			if logger := klog.FromContext(ctx).V(6); logger.Enabled() && !ef.reservations.Idle() {
				ef.reservations.Read(func(l ledger.Reader) { logger.Info("Ledger", "state", l.String()) })
			}
		}
		ef.effects(ctx)
	}
}

func (ef *Effects) effects(ctx context.Context) {
	e := ef.reservations.Take()
	if len(e.Activate) > 0 {
		pods := make([]*corev1.Pod, 0, len(e.Activate))
		for _, ref := range e.Activate {
			if pod := ef.pending.Get(ref.UID); pod != nil {
				pods = append(pods, pod)
			}
		}
		klog.FromContext(ctx).V(3).Info("Opening gates", "pods", len(pods))
		ef.queue.Activate(pods)
	}
	for _, w := range e.Words {
		ef.events.Pod(w.Ref, corev1.EventTypeWarning, "PlacementFailed", w.Note)
	}
	for _, w := range e.Waits {
		ef.events.Pod(w.Ref, corev1.EventTypeNormal, "WaitingForNode", w.Note)
	}
	for _, t := range e.Tainted {
		ef.tainted(t)
	}
	for _, claim := range e.Cancel {
		ef.launches.Cancel(ctx, claim)
	}
	ef.launches.EndUnused(ctx, e.End)
	if e.Buffers {
		ef.triggers.LookAfterChunks()
	}
	if e.Plan {
		ef.triggers.Replan()
	}
}

// inPieces makes steps until there is none left. The lock is released in between, because each step looks at many pods.
func (ef *Effects) inPieces(step func(*ledger.Ledger, time.Time) (more bool)) {
	for more := true; more; {
		ef.reservations.Step(func(l *ledger.Ledger, now time.Time) { more = step(l, now) })
	}
}

// later submits pods that were left to preemption first. Those for which preemption has chosen victims are left out of plans as long as the
// victims may take to end (withoutNominees).
func (ef *Effects) later() {
	for _, d := range ef.reservations.Due() {
		if ef.pending.Get(d.Ref.UID) != nil {
			ef.reservations.SubmitUnassumed(d.Ref, d.Class)
		}
	}
}

// relieve plans again for pods that were refused because of a limit, once the limit may have capacity again.
func (ef *Effects) relieve() {
	inFlight := func() (n int) {
		ef.reservations.Read(func(l ledger.Reader) { n = l.NotInitialized() })
		return n
	}
	if ef.relief.Due(ef.clock.Now(), inFlight) {
		ef.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Relieved() })
	}
}
