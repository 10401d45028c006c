// Package draw makes random worlds for the fidelity run: pools, workloads that arrive in bursts, capacity that runs out and
// nodes that boot at their leisure. A seed makes the same world each time.
//
// It runs nothing and knows nothing of what should come of a world.
package draw
