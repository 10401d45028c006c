// Package staticpool keeps static NodePools, those with replicas, at their number of nodes: its Controller counts their claims, proposes the
// nodes that are missing, and ends the claims that are too many.
//
// It launches nothing itself: pkg/launch implements the interface through which it commits what it proposes (provisioning.Committer), and
// tells State of claims that have ended or failed.
package staticpool
