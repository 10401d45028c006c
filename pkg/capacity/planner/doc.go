// Package planner decides where pods go and what to buy for them: a view of the cluster in, a plan out. It is as pure as package
// capacity, whose values it uses.
//
// It need not get every constraint right that kube-scheduler knows: the profile's own Filter plugins (pkg/simulate)
// verify what it proposes before any money is spent.
//
// A walk in the order in which a plan is made: capacity.ClassOf has returned each pod's class; Planner.Plan is the numbered list; package
// catalog finds what can be bought, and for which pods; package topology counts pods by domain and knows the constraints among pods, each kind
// in a file of its own; existing.go fills nodes that exist; domainbuckets.go assigns pods to the values of topology labels, buy.go hands what is
// left to package packing as numbers; shape.go finds the offerings of each node, order.go the order of binding, learn.go what to change in
// the next attempt; emit.go and refuse.go write the result.
package planner
