// Package store watches and writes Karpenter's objects: Store holds one cache for each kind, and what is written to an object at once is
// known before the watch delivers it. The leader's status controller writes conditions, counts and hashes, ends the claims of deleted
// pools, and removes the finalizer of node classes that no claim uses (RunStatus).
//
// Pools and classes that no API object stands for are those of pkg/karpenter/derived. The store shows them among the others.
//
// It decides nothing and calls no cloud. Package karpenter converts the objects.
package store
