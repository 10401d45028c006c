// Package bench measures what Dovetail costs the scheduler it lives in: the answer of PostFilter, the keeping of room in
// Filter, a burst from its first Node to its last binding, and the throughput when there is nothing to do. docs/performance.md
// tells what the figures mean.
//
// Machines are noisy: what is compared is compared within one run, in turns, as a ratio. Only what has a bound in the
// design fails a benchmark.
//
// It is not for the planner's speed and cost, which pkg/capacity measures, nor for that of verifying, which pkg/simulate
// does.
package bench
