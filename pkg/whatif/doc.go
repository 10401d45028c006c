// Package whatif makes changed copies of a cluster's objects: without a node, with what is being launched in place, or with one thing less in a
// pod's way. What would happen then is for the planner to say (pkg/offline).
//
// It decides nothing itself and changes no object that it is given.
package whatif
