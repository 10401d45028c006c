//go:build fidelity

package worlds

import (
	"testing"

	"github.com/dovetail-scheduler/dovetail/test/worlds/draw"
)

// A fixed slice of the run of make fidelity, in small. Each seed replays alone: make fidelity SEED=n SMALL=1.
func TestSliceOfWorlds(t *testing.T) {
	many := Many{Size: draw.Small, Side: 2, Tell: func(w *draw.World, r *Result) {
		t.Logf("%v\n  %.1fs: %v", w, r.Took.Seconds(), &r.Report)
		for _, line := range append(r.Off, r.Problems()...) {
			t.Logf("seed %d: %s", w.Seed, line)
		}
		if r.Unsettled != "" {
			t.Logf("seed %d: patience ended: %s", w.Seed, r.Unsettled)
		}
	}}
	for s := range uint64(20) {
		many.Seeds = append(many.Seeds, s+1)
	}
	total, err := many.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(total)
	if err := Verdict(total); err != nil {
		t.Error(err)
	}
}
