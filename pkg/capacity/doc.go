// Package capacity is the pure core of Dovetail: values in, a decision out.
//
// It defines demand (classes of identical pods), requirements, instance types and their offerings, pools, the view of a
// cluster and the plan of what to buy; its sub-package ledger keeps the reservations of capacity. It is pure: no
// client-go, no scheduler framework, no logging, no clocks, no goroutines, no I/O; the time is an argument.
// It may use the API types (k8s.io/api, apimachinery) and the pure helpers of k8s.io/component-helpers.
//
// It need not get every constraint right that kube-scheduler knows: the profile's own Filter plugins (pkg/simulate)
// verify what it proposes before any money is spent.
//
// A walk through the planner, in the order in which a plan is made: ClassOf returns a pod's class; Planner.Plan is the
// numbered list; catalog.go, labelchoices.go, match.go and daemons.go find what can be bought, and for which pods;
// group.go, topology.go and topologycount.go count pods by domain; allow.go checks these counts; existing.go fills nodes that
// exist; domainbuckets.go assigns pods to the values of topology labels, buy.go hands what is left to the sub-package packing as
// numbers; shape.go finds the offerings of each node, order.go the order of binding, learn.go what to change in the next
// attempt; emit.go and refuse.go write the result.
package capacity
