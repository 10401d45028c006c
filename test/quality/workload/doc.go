// Package workload describes demand by its shapes and counts, without a cluster: what a planner is measured on. It reads
// and writes a small JSON form, makes synthetic workloads, and turns either into what the planner takes.
//
// It is not for correctness: kubelets, labels and prices are simplified the way the lower bounds that plans are measured
// against see them.
package workload
