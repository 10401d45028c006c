// Package binder is the door through which a planned pod reaches its node: it holds the pod back until its node is there
// and safe for it (PreEnqueue, in a plugin of its own), pins it to the node (PreFilter), keeps the node's room for those it is planned for
// (Filter), and lets go of the promise when it is kept (Reserve, PostBind). It decides nothing: the ledger does.
package binder
