// Package store watches and writes Karpenter's objects. Store holds one cache for each kind; a NodeClaim that it writes is in the cache at
// once, before the watch delivers it. The leader's status controller writes conditions, counts and hashes, ends the claims of deleted
// pools, and removes the finalizer of node classes that no claim uses (RunStatus).
//
// Pools and classes that have no API object of their own are those of pkg/karpenter/derived. The store returns them with the others.
//
// It decides nothing and calls no cloud. Package karpenter converts the objects.
package store
