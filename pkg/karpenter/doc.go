// Package karpenter is the edge to Karpenter's API: NodePool, NodeClaim, NodeOverlay and EC2NodeClass objects to
// capacity words and back, their CustomResourceDefinitions, and one Store that watches and writes them.
//
// A NodeClaim is the intent log of a launch. What a claim must remember beyond Karpenter's own
// fields is kept in annotations of the dovetail.sh domain; see annotation.go for their encoding.
//
// Objects that do not fit their Go type, which the CRDs' own validation lets pass now and then, are kept apart one by one
// (decode.go): they are reported and never used, and the objects beside them work on.
//
// It is not here to call a cloud, to know the scheduler framework, or to decide anything: what to buy is decided in
// pkg/capacity, when by pkg/launch, and when a node ends by pkg/lifecycle and pkg/disruption.
package karpenter
