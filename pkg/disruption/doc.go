// Package disruption decides which nodes to terminate, and when. It only deletes NodeClaims; pkg/lifecycle terminates the nodes.
//
// A Controller looks at the cluster in passes, one at a time, every few seconds and when something is due. A pass reads everything once,
// asks one method after another for candidates, and deletes the claims of those that the disruption budgets of their pool allow:
//
//	expiry        nodes whose expireAfter is over, or whose capacity block ends, replaced before they are drained
//	interruption  nodes that the cloud takes back, replaced before they are drained as far as there is time
//	emptiness     nodes without pods of their own for consolidateAfter
//
// Expired and interrupted nodes have to end, so budgets don't limit them; all other disruption is voluntary, and budgets, do-not-disrupt
// and its older names prevent it. A paused pool and the brake (a number per minute) apply to everything but instances that EC2 is about to
// end; a dry run to everything but those, capacity blocks and maintenance, which are EC2's decision, too.
//
// A pod may be bound between the decision and the deletion. Our own scheduler is kept off by a cordon (Fence): from that step on it binds
// nothing there. Other schedulers are kept off by a taint. Only then the node's pods are read once more from the API, and only if there are
// none the claim is deleted; otherwise cordon and taint are removed.
//
// The package doesn't repair nodes, and it evicts nothing.
package disruption
