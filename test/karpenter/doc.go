// Package karpenter runs a main of Karpenter as a process beside a test cluster, and reads its metrics. The mains come from Karpenter's Go
// modules, each built with its own dependencies (tools/peer and tools/neighbour): `make peer` and `make neighbour` build them.
//
// It contains nothing of Karpenter's, and no test of `make test` uses it.
package karpenter
