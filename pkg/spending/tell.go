package spending

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Tend is for the process that leads. It gives verdicts and reports what has happened to breakers and budgets. It returns the breakers that have closed; changed: pods may be
// planned for again, or have another reason to wait.
func (g *Guard) Tend(ctx context.Context, reservations Reservations) (closed []guard.Key, changed bool) {
	g.tends.Store(true)
	g.Changes.retryNow()
	g.Settle(reservations)
	g.mu.Lock()
	notices, budgets := g.state.notices, g.budgets.changes(g.clock.Now())
	g.state.notices = nil
	g.mu.Unlock()
	g.tellBudgets(budgets)
	for _, n := range notices {
		g.tellBreaker(ctx, n)
		changed = changed || n.Kind == guard.Paused || n.Kind == guard.Closed || n.Kind == guard.Known
		if n.Kind == guard.Closed {
			closed = append(closed, n.Key)
		}
	}
	return closed, changed
}

// tellBreaker records an event about a breaker on the object that it is about.
func (g *Guard) tellBreaker(ctx context.Context, n guard.Notice) {
	reason, kind := "", corev1.EventTypeWarning
	switch n.Kind {
	case guard.Opened:
		reason = "LaunchesPaused"
	case guard.Paused:
		reason = "ProbeFailed"
	case guard.Closed:
		reason, kind = "LaunchesResumed", corev1.EventTypeNormal
	default:
		return
	}
	if n.Key.Repair() {
		reason = "RepairsPaused"
	}
	klog.FromContext(ctx).Info("Spending guard", "event", string(n.Kind), "breaker", n.Key.String(), "message", n.Text)
	breakerEvents.WithLabelValues(string(n.Kind)).Inc()
	if n.Kind == guard.Closed {
		n.Text = "a machine for " + n.Key.String() + " has done work: launches are no longer paused"
	}
	if o := guard.OwnerOf(n.Key); o.Class != "" {
		g.records.TellClass(o.Class, kind, reason, objects.OneLine(n.Text))
	} else {
		g.records.TellPool(o.Pool, kind, reason, objects.OneLine(n.Text))
	}
}

// tellBudgets sets the condition and records the event on each pool whose budget has been reached, has changed, or no longer limits it.
func (g *Guard) tellBudgets(news map[string]string) {
	for _, pool := range slices.Sorted(maps.Keys(news)) {
		why := news[pool]
		g.records.BudgetReached(pool, why)
		if why != "" {
			g.records.TellPool(pool, corev1.EventTypeWarning, "BudgetReached", "no more nodes are launched for now: "+why)
		} else {
			g.records.TellPool(pool, corev1.EventTypeNormal, "BudgetFree", "no budget keeps nodes from being bought any more")
		}
	}
}
