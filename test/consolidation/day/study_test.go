//go:build study

package day

import (
	"math"
	"testing"

	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// TestStudyDaysOfTheEmulation holds the emulation, in the mean of three days with and without cron jobs, to what the study measured of three
// seeds of its own: 2 % of the cost over the bound, and 5 % of the evictions.
func TestStudyDaysOfTheEmulation(t *testing.T) {
	const seeds = 3
	for name, study := range map[string]struct{ cost, evictions float64 }{
		"cron":    {(1.083 + 1.102 + 1.105) / seeds, (10_758 + 10_224 + 9_005) / seeds},
		"diurnal": {(1.078 + 1.077 + 1.086) / seeds, (1_855 + 1_893 + 2_056) / seeds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cost, evictions := 0.0, 0.0
			for seed := uint64(1); seed <= seeds; seed++ {
				for _, load := range Loads {
					if load.Name != name {
						continue
					}
					w, err := cluster.New(cluster.Deployments(), catalog.Builtin(), cluster.DayMultiply, load.Spot)
					if err != nil {
						t.Fatal(err)
					}
					tally, err := Run(w, load, seed, NewKarpenter(false, seed))
					if err != nil {
						t.Fatal(err)
					}
					cost += tally.Cost / tally.Bound / seeds
					evictions += float64(tally.Evictions) / seeds
				}
			}
			t.Logf("cost %.3f of the bound (study %.3f), %.0f evictions (%.0f)", cost, study.cost, evictions, study.evictions)
			if off := cost/study.cost - 1; math.Abs(off) > .02 {
				t.Errorf("cost %.3f of the bound is %+.1f %% off the study's %.3f", cost, 100*off, study.cost)
			}
			if off := evictions/study.evictions - 1; math.Abs(off) > .05 {
				t.Errorf("%.0f evictions are %+.1f %% off the study's %.0f", evictions, 100*off, study.evictions)
			}
		})
	}
}
