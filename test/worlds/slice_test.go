package worlds

import (
	"sync"
	"testing"

	"github.com/dovetail-scheduler/dovetail/test/worlds/check"
	"github.com/dovetail-scheduler/dovetail/test/worlds/draw"
)

// A fixed part of make fidelity's run, with small worlds. The result also depends on timing: a seed that fails counts only if it fails
// again when it runs alone, twice. To replay one seed: make fidelity WORLD=n SMALL=1.
func TestSliceOfWorlds(t *testing.T) {
	const seeds = 20
	var mu sync.Mutex
	reports := map[uint64]*check.Report{}
	many := Many{Size: draw.Small, Side: 2, Tell: func(w *draw.World, r *Result) {
		mu.Lock()
		defer mu.Unlock()
		tell(t, w, r)
		reports[w.Seed] = &r.Report
	}}
	for s := range uint64(seeds) {
		many.Seeds = append(many.Seeds, s+1)
	}
	if _, err := many.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		alone := many
		alone.Seeds, alone.Side = nil, 1
		for seed, r := range reports {
			if failed(r) {
				alone.Seeds = append(alone.Seeds, seed)
			}
		}
		if len(alone.Seeds) > seeds/4 {
			t.Fatalf("%d of %d seeds fail: %v", len(alone.Seeds), seeds, alone.Seeds)
		} else if len(alone.Seeds) > 0 {
			t.Logf("once more, alone: %v", alone.Seeds)
			if _, err := alone.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	total := &check.Report{}
	for _, r := range reports {
		total.Add(r)
	}
	t.Log(total)
	if err := Verdict(total); err != nil {
		t.Error(err)
	}
}

func failed(r *check.Report) bool { return len(r.Off) > 0 || len(r.Problems()) > 0 }

func tell(t *testing.T, w *draw.World, r *Result) {
	t.Logf("%v\n  %.1fs: %v", w, r.Took.Seconds(), &r.Report)
	for _, line := range append(r.Off, r.Problems()...) {
		t.Logf("seed %d: %s", w.Seed, line)
	}
	if r.Unsettled != "" {
		t.Logf("seed %d: patience ended: %s", w.Seed, r.Unsettled)
	}
}
