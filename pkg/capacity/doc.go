// Package capacity defines the values that a decision about capacity is made from, and what is decided.
//
// They are demand (classes of identical pods), requirements, instance types and their offerings, pools, the view of a
// cluster, and the plan of what to buy. Its sub-package planner makes the plan, consolidation decides which used nodes to empty, and
// ledger keeps the reservations of capacity. All of them are pure: no client-go, no scheduler framework, no logging, no clocks, no
// goroutines, no I/O; the time is an argument. They may use the API types (k8s.io/api, apimachinery) and the pure helpers of
// k8s.io/component-helpers.
package capacity
