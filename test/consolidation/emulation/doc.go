// Package emulation emulates the consolidation of Karpenter core v1.14.1, as the other side of the benchmarks of consolidation.
//
// What it does as Karpenter does (pkg/controllers/disruption there):
//
//   - One command per pass: a multi-node command if one is found, else a single-node command. Multi-node consolidation takes a prefix of at
//     most 100 candidates, ordered by price over 1 + the pods' eviction cost, and finds its length by binary search. Single-node
//     consolidation tries the candidates in this order.
//   - A command removes its candidates and launches at most one node, which must be cheaper than all of them, and for several candidates
//     cheaper than any of them that could take the pods (filterOutSameInstanceType).
//   - Pods are placed first-fit, largest first, in the order of the nodes' names, which says nothing of what is cheap to keep.
//   - Policy Balanced accepts a command if its part of the pool's cost is at least half of its part of the pool's disruption cost.
//   - From spot to spot, a single node is only replaced if at least 15 cheaper types hold its pods. (SpotToSpotConsolidation is on: without
//     it Karpenter only deletes spot nodes.)
//
// It flatters Karpenter: simulations take no time, no command fails its validation, and kube-scheduler places the pods where the simulation
// has placed them. Zones, constraints and disruption budgets by reason are not emulated.
//
// A test holds it to the figures of the study that this project's consolidation was designed by. It must not be changed without that test.
package emulation
