package main

import (
	"math"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// defaultMemoryOverhead is the scheduler's default of vmMemoryOverheadPercent.
const defaultMemoryOverhead = 0.075

// defaultBudget is what the scheduler itself spends on a burst.
const defaultBudget = provisioning.DefaultEffort * unit

// unit is how long a unit of the planner's effort takes: between 0.8 and 2.2 microseconds of a core of the machine on which
// docs/performance.md was measured, depending on the workload (go run ./test/quality shows how much time an effort adds).
const unit = time.Microsecond

// effortOf returns the effort that takes about so long. The plan depends on the effort alone, never on a clock: the same budget gives the
// same plan on every machine, sooner on a faster one.
func effortOf(budget time.Duration) int {
	return int(min(budget/unit, math.MaxInt32))
}
