// Package workload describes pods by their shapes and counts, without a cluster, as input for measuring a planner. It reads and writes
// a small JSON format, makes synthetic workloads, and turns either into the planner's input.
//
// It is not for correctness tests: kubelets, labels and prices are simplified in the same way as in the lower bounds that plans are
// compared with.
package workload
