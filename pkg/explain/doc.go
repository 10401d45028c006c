// Package explain answers why a pod waits, why a node is kept, and what a pool does, from the objects of a cluster.
//
// What would be bought and why a pool refuses a pod is for the planner to say (pkg/offline, pkg/whatif); what the controllers have decided
// they have written on objects. This package finds it, puts the most useful first, and adds what a user can do. It decides nothing itself.
package explain
