// Package bench measures what Dovetail costs the scheduler it runs in: the answer of PostFilter, the protection of reserved capacity
// in Filter, the time from the cache to a verified plan, a burst from its first Node to its last binding, and the throughput when
// Dovetail has nothing to do. docs/performance.md explains the results.
//
// Timings on a machine vary: results are only compared within one run, in turns, as a ratio. A benchmark fails only if the design sets
// a bound.
//
// It does not measure how cheap plans are (test/quality does), nor the parts of planning and verifying (pkg/capacity and pkg/simulate
// do).
package bench
