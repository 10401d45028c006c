// Package capacity is the pure core of Dovetail: values in, a decision out.
//
// It knows demand (classes of identical pods), requirements, instance types and their offers, pools, the view of
// a cluster, the plan of what to buy, and (in its sub-package ledger) who is promised which room. It is pure: no
// client-go, no scheduler framework, no logging, no clocks, no goroutines, no I/O; time comes in as an argument.
// It may use the API types (k8s.io/api, apimachinery) and the pure helpers of k8s.io/component-helpers.
//
// It is not here to be right about every constraint kube-scheduler knows: what it proposes is verified by the
// profile's own Filter plugins (pkg/simulate) before any money is spent.
//
// A walk through the planner, in the order in which a plan is made: ClassOf makes a pod's class; Planner.Plan is the
// numbered list; catalog.go, variants.go, match.go and daemons.go say what can be bought and by whom it can be used;
// group.go, topology.go and savedCounts.go count pods by domain; allow.go asks those counts; existing.go fills what is there;
// cells.go turns constraints over labels into fixed labels, buy.go hands what is left to the sub-package packing as
// numbers; shape.go finds the offers of each node, order.go the order of binding, learn.go what to do otherwise next
// time; emit.go and refuse.go write the answer.
package capacity
