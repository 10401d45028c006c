// Package binder brings a planned pod to its node: it holds the pod back until its node is there and safe for it (PreEnqueue, in a plugin
// of its own), pins it to the node (PreFilter), keeps the node's capacity for the pods that are planned for it (Filter), and ends the
// reservation when the pod is bound (Reserve, PostBind). It decides nothing: the ledger does.
package binder
