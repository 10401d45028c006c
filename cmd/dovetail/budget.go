package main

import (
	"math"
	"time"
)

// defaultMemoryOverhead is the scheduler's default of vmMemoryOverheadPercent.
const defaultMemoryOverhead = 0.075

// defaultBudget is what the scheduler spends on a burst.
const defaultBudget = 50 * time.Millisecond

// effortOf is the planner's measure of work that takes about so long. The plan depends on the effort alone, never on a clock:
// the same budget gives the same plan on every machine, sooner on a faster one.
func effortOf(budget time.Duration) int {
	return int(min(budget.Microseconds(), math.MaxInt32))
}
