// Package bench measures what Dovetail costs the scheduler it lives in: the answer of PostFilter, the keeping of room in
// Filter, the way from the cache to a verified plan, a burst from its first Node to its last binding, and the throughput when there
// is nothing to do. docs/performance.md tells what the figures mean.
//
// Machines are noisy: what is compared is compared within one run, in turns, as a ratio. Only what has a bound in the
// design fails a benchmark.
//
// It is not for how cheap plans are, which test/quality measures, nor for the parts of planning and verifying, which
// pkg/capacity and pkg/simulate do.
package bench
