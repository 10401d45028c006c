// Package draw generates random worlds for the fidelity run: pools, workloads that are created in bursts, capacity that runs out, and
// nodes with different boot times. A seed always gives the same world.
//
// It runs nothing, and doesn't know what the result should be.
package draw
