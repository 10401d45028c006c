// Package packing decides which bins to buy for counted items: numbers in, numbers out.
//
// An item is a number of identical pieces with a need per dimension; a bin is something to buy, with a capacity per dimension and a
// price. For the planner a piece is a pod and a bin is an offering candidate, but the package knows nothing of pods, labels or
// clouds: which bins an item may go into is a bit set, and what may share a bin is a handful of counting rules (Rule). It is
// deterministic: effort is counted in work, never in time.
//
// It does not aim at the optimum, but at a few per cent above a lower bound, which it also reports.
package packing
