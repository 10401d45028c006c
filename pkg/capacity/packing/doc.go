// Package packing decides which bins to buy for counted items: numbers in, numbers out.
//
// An item is a number of equal things with a need per dimension, a bin a thing to buy with room per dimension and a
// price. The package knows nothing of pods, labels or clouds; what an item may go into is a bit set, and what may share
// a bin is a handful of counting rules (Rule). It is deterministic: effort is counted in work, never in time.
//
// It is not here to be optimal. It is here to be a few per cent above a lower bound that it reports as well.
package packing
