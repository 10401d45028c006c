// Command peer holds the emulation of Karpenter's consolidation (test/consolidation/emulation) against Karpenter itself, on a small day:
//
//	make peer
//	make peer SEED=2
//
// Karpenter is its own main for the kwok provider, built from its Go module (tools/peer/go.mod names the version). It runs beside etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, which are processes too, with the instance types, prices and Deployments of
// the benchmarks of consolidation. Only kubelets are simulated: nodes are ready and pods run as soon as they are there.
//
//  1. Karpenter launches nodes for all pods.
//  2. 40 % of the pods are deleted. A disruption budget of 0 keeps all nodes.
//  3. The emulation consolidates a copy of this cluster, in different orders of its nodes.
//  4. Karpenter consolidates the cluster, a tenth of the nodes at a time, until nothing changes any more or ten minutes are over.
//
// It prints what both have reached, and what it has cost. It judges nothing, and says nothing about our own consolidation.
package main
