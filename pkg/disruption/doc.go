// Package disruption decides which nodes to terminate, and when. It only deletes NodeClaims; pkg/lifecycle terminates the nodes.
//
// A Controller looks at the cluster in passes, one at a time, every few seconds and when something is due. A pass reads everything once,
// asks one reason after another which candidates it applies to, and deletes the claims of those that may be terminated. A reason is one file;
// reason.go has their interfaces and their lists:
//
//	interruption  nodes that the cloud takes back, replaced before they are drained as far as there is time
//	unhealthy     nodes that are unhealthy by a repair policy, replaced before they are drained; the drain has a deadline
//	expiry        nodes whose expireAfter is over, replaced before they are drained
//	blockEnd      nodes whose capacity block ends, likewise (expiry.go)
//	drift         drifted nodes without pods of their own, as many as the disruption budgets of their pool allow
//	emptiness     nodes that have had no pods of their own for consolidateAfter, as many as these budgets allow
//
// Pods of DaemonSets, static pods, pods that have ended and pods with a disruption cost of zero or less are not a node's own (pods.Occupies).
//
// Used nodes are emptied to save money, or for a moveReason, such as drift, where a Consolidation is given (consolidation.go): a planner decides which ones, and reserves capacity for
// their pods. usednodes.go says what each node and its pods mean for that (packages podrules and pdb), policy.go what its pool allows, moves.go
// empties the nodes, and kept.go says why the others are kept.
//
// Package interruptions records what the cloud announces about instances. Package rebalance knows which nodes are to leave their spot capacity
// because the cloud recommends that, and which ones return to it; both are used nodes, emptied by moves.
//
// Nodes that have to end are replaced (replacement.go), those that may be terminated are removed while they are empty (removal.go). Both keep
// pods off with a cordon (cordon.go) and delete claims in one place (termination.go).
//
// Expired and interrupted nodes have to end, so budgets don't limit them; all other disruption is voluntary, and budgets, do-not-disrupt
// and its older names prevent it. A paused pool and the brake (a limit of terminations per minute) apply to everything except instances
// that EC2 is about to end. In a dry run, only nodes that EC2 has decided to end are terminated: those instances, nodes whose capacity
// block ends, and nodes with scheduled maintenance.
//
// A pod may be bound between the decision and the deletion. Our own scheduler is kept off by a cordon (Fence): from that step on it binds
// nothing there. Other schedulers are kept off by a taint. Only then the node's pods are read once more from the API, and only if there are
// none the claim is deleted; otherwise cordon and taint are removed.
//
// Nodes that are emptied to save money are cordoned by the planner when it reserves capacity. They are tainted, and their pods read from the API,
// only when all of that capacity is usable; if the planner still has capacity for each of these pods, the claims are deleted.
// Where a Deployment asks for it, a roll-out replaces its pods before the other pods are evicted (movesurge.go, package surge).
//
// The package evicts nothing.
package disruption
