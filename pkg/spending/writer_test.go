package spending

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

var (
	badImage = guard.MachineKey("class", "", "")
	badPods  = guard.PodKey("pool", web)
	ofPool   = guard.Owner{Pool: "pool"}
	thrown   = guard.Fault{Cause: "taint x", Message: "taint x evicts it"}
)

// opens opens a breaker.
func (p *purse) opens(k guard.Key, f guard.Fault) {
	c := &capacity.Claim{Name: "opened-" + k.String(), Pool: k.Pool, NodeClass: k.Class, ImageID: k.Image, Purchase: &guard.Purchase{Round: k.String(), Workloads: []guard.Workload{k.Workload}}}
	p.Buy(c, nil, nil)
	p.Fail(c.Name, f)
	p.Ended(c.Name, true)
}

// writer returns a new process's writer.
func (p *purse) writer() *Writer {
	return NewWriter(p.Guard, WriterParts{Clock: p.clock, Claims: p, Each: func(_ context.Context, n int, f func(int)) {
		for i := range n {
			f(i)
		}
	}})
}

// Claim returns a claim whose name is not "gone".
func (p *purse) Claim(name string) *capacity.Claim {
	if name == "gone" {
		return nil
	}
	return &capacity.Claim{Name: name, Served: slices.Contains(p.saved, name) && p.fails == nil}
}

func (p *purse) Pools(func(string) ([]*capacity.InstanceType, error)) []*capacity.Pool { return nil }

// A record that can't be read is logged, and overwritten; so is a record for which there is no longer a reason.
func TestRecordsOfAnEarlierProcessAreWrittenOver(t *testing.T) {
	p := newPurse(t, Config{})
	leads := func() *Writer {
		p.restart(Config{})
		if err := p.Restore(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		return p.writer()
	}
	p.kept[ofPool] = "{nonsense"
	w := leads()
	w.WriteRecords(t.Context())
	if got := p.kept[ofPool]; got != "" {
		t.Errorf("kept %q", got)
	}
	p.opens(badPods, thrown)
	w.WriteRecords(t.Context())
	if p.kept[ofPool] == "" {
		t.Fatal("nothing is kept")
	}
	w = leads()
	p.clock.Step(48 * time.Hour) // no probe has been due
	p.Settle(reservations.New(p.clock))
	w.WriteRecords(t.Context())
	if got := p.kept[ofPool]; got != "" {
		t.Errorf("still kept after two days: %q", got)
	}
}

// A failed write is repeated, and an unchanged record isn't written.
func TestRecordsAreWrittenWhenTheyChange(t *testing.T) {
	p := newPurse(t, Config{})
	w := p.writer()
	p.fails = errors.New("conflict")
	p.opens(badPods, thrown)
	w.WriteRecords(t.Context())
	p.fails = nil
	w.WriteRecords(t.Context())
	if p.kept[ofPool] == "" {
		t.Error("not tried again")
	}
	n := p.written
	w.recordLater(ofPool)
	w.WriteRecords(t.Context())
	w.WriteRecords(t.Context())
	if p.written != n {
		t.Error("written though it is the same")
	}
}

// Served is recorded on the claim, and retried after a failed write.
func TestServedIsRecorded(t *testing.T) {
	p := newPurse(t, Config{})
	w := p.writer()
	p.state.served["c"], p.state.served["gone"] = true, true
	p.fails = errors.New("conflict")
	w.writeServed(t.Context())
	p.saved, p.fails = nil, nil
	for range 2 {
		w.writeServed(t.Context())
	}
	if !slices.Equal(p.saved, []string{"c"}) {
		t.Errorf("written for %v", p.saved)
	}
}

// The metric counts breakers that pause launches. One of repairs pauses none.
func TestBreakersOfRepairsPauseNoLaunches(t *testing.T) {
	p := newPurse(t, Config{})
	w := p.writer()
	w.All = func() map[string]*capacity.Claim { return nil }
	expect := func(when string, want float64) {
		t.Helper()
		w.CountCost()
		if got, err := testutil.GetGaugeMetricValue(breakersOpen); err != nil || got != want {
			t.Errorf("%s: %v breakers pause launches, want %v; %v", when, got, want, err)
		}
	}
	p.Repaired("a", "pool", "NotReady", p.clock.Now().Add(-100*time.Hour))
	p.clock.Step(time.Hour)
	replaced := p.clock.Now().Add(-10 * time.Minute)
	p.Repaired("b", "pool", "NotReady", replaced)
	if p.HoldsRepair("pool", replaced) == nil {
		t.Fatal("repairs are not paused")
	}
	expect("repairs are paused", 0)
	p.opens(badPods, thrown)
	expect("launches are paused, too", 1)
}
