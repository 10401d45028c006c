// Package cluster is a cluster reduced to what consolidation decides by: nodes of instance types, the capacity that is free on them, and
// how many pods of each class they run. It has no labels, zones or constraints, and no clock.
//
// The benchmarks of consolidation run on it, ours and the emulation of Karpenter's alike, so that both see the same pods, types and prices.
package cluster
