// Package karpenter is the adapter to Karpenter's API: it converts NodePool, NodeClaim and NodeOverlay objects to the
// types of pkg/capacity and back, and holds their CustomResourceDefinitions. Package store, below it, watches and writes them.
//
// A NodeClaim is the write-ahead log of a launch. What a claim must remember beyond Karpenter's own fields is kept in annotations of
// the dovetail.sh domain; see annotation.go for their encoding.
//
// Objects that do not fit their Go type, which the CRDs' own validation accepts now and then, are handled one by one (decode.go): they
// are reported and never used, and the other objects are not affected.
//
// This package does not call a cloud, does not know the scheduler framework, and decides nothing: pkg/capacity decides what to launch,
// pkg/launch when, and pkg/lifecycle and pkg/disruption when a node is terminated.
package karpenter
