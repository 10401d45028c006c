package launch

import (
	"context"
	"maps"
	"testing"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

var epoch = time.Unix(1_000_000, 0)

// What the spending guard needs of the world.

func (w *world) GuardRecords(context.Context) (map[guard.Owner]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.kept), w.broken["GuardRecords"]
}

func (w *world) RecordGuard(_ context.Context, o guard.Owner, text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("RecordGuard"); err != nil {
		return err
	}
	w.kept[o] = text
	return nil
}

func (w *world) RecordServed(_ context.Context, c *capacity.Claim) error {
	return w.onThe(c, func(have *capacity.Claim) {
		have.Served, have.ServedAt = true, w.clock.Now()
		w.served = append(w.served, have.Name)
	})
}

func (w *world) TellClass(class, _, reason, note string) { w.TellPool(class, "", reason, note) }

func (w *world) BudgetReached(pool, why string) { w.TellPool(pool, "", "condition", why) }

// guarded returns a world whose Launcher has a spending guard, a fake clock, and doesn't run.
func guarded(t *testing.T, cfg spending.Config) (*world, *clocktesting.FakeClock) {
	w := newWorld(t)
	c := clocktesting.NewFakeClock(epoch)
	w.clock, w.budget = c, &cfg
	w.leads()
	return w, c
}

// leads replaces the Launcher by another one, which resumes what the last one left.
func (w *world) leads() {
	w.t.Helper()
	w.build()
	w.parts.recovery.recover(w.t.Context(), func() {})
	w.settled()
}

// settled waits for everything under way.
func (w *world) settled() { w.parts.calls.wg.Wait() }

// opens opens a breaker.
func (w *world) opens(k guard.Key, f guard.Fault) {
	c := &capacity.Claim{Name: "opened-" + k.String(), Pool: k.Pool, NodeClass: k.Class, ImageID: k.Image, Purchase: &guard.Purchase{Round: k.String()}}
	if k.Workload != (guard.Workload{}) {
		c.Purchase.Workloads = []guard.Workload{k.Workload}
	}
	w.spending.Buy(c, nil, nil)
	w.spending.Fail(c.Name, f)
	w.spending.Ended(c.Name, true)
}

// metric returns a series of a metric by pool, and whether it is there.
func metric(t *testing.T, name, pool, state string) (value float64, there bool) {
	t.Helper()
	all, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			of := map[string]string{}
			for _, l := range m.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			if family.GetName() == name && of[poolmetrics.Label] == pool && of["state"] == state {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}

// plans runs a round of the planner and what follows it.
func (w *world) plans() {
	w.parts.Rounds.Round(w.t.Context())
	w.settled()
}
