// Package packing decides which candidates to buy for counted items: numbers in, numbers out.
//
// An item is a number of identical pieces with a need per dimension (a resource); a candidate is something to buy, with a capacity per
// dimension and a price. A pattern is what one candidate holds: how many pieces of which items. For the planner a piece is a pod and a
// candidate is an offering candidate, but the package knows nothing of pods, labels or clouds: which candidates an item may go into is a bit
// set, and what may share a candidate is a handful of counting rules (Rule). It is deterministic: effort is counted in work, never in time.
//
// It does not aim at the optimum, but at a few per cent above a lower bound, which it also reports.
package packing
