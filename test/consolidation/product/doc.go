// Package product lets the product's consolidation (pkg/capacity/consolidation) decide for a cluster of the benchmarks, in passes, as the
// replacement controller does: it keeps what has accrued between passes, and carries out the moves that are due.
package product
