// Package planner decides where pods go and what to buy for them: a view of the cluster in, a plan out. It is as pure as package
// capacity, whose values it uses.
//
// It need not get every constraint right that kube-scheduler knows: the profile's own Filter plugins (pkg/simulate)
// verify what it proposes before any money is spent.
//
// A walk in the order in which a plan is made: capacity.ClassOf has returned each pod's class; Planner.Plan is the numbered list;
// catalog.go, labelchoices.go, match.go and daemons.go find what can be bought, and for which pods; group.go, topology.go and
// topologycount.go count pods by domain; constraint.go has the questions about these counts, which batch.go asks, and lists the kinds of
// constraints that answer, each in its file; existing.go fills nodes that exist; domainbuckets.go assigns pods to the values of topology
// labels, buy.go hands what is left to package packing as numbers; shape.go finds the offerings of each node, order.go the order of
// binding, learn.go what to change in the next attempt; emit.go and refuse.go write the result.
package planner
