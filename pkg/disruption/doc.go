// Package disruption decides which nodes should go, and when. Ending them is not its business: it deletes NodeClaims, and
// pkg/lifecycle does the rest.
//
// A Controller goes through the cluster in passes, one at a time, every few seconds and when something is due. A pass looks
// at everything once, asks one method after another for nodes that may go, and ends those that the budgets of their pool
// allow:
//
//	expiry        nodes whose expireAfter is over, or whose capacity block ends, replaced before they are drained
//	interruption  nodes that the cloud takes, replaced before they are drained as far as there is time
//	emptiness     nodes without pods of their own for consolidateAfter
//
// Expiry and interruption have to be, so budgets don't hold them back; whatever else is decided here is a favour, which budgets,
// do-not-disrupt and its older names prevent. A paused pool and the brake (so many per minute) come before everything but instances
// that EC2 is about to end; a dry run before everything but those, capacity blocks and maintenance, which are EC2's decision, too.
//
// Between the decision and the deletion a pod may come. Against our own scheduler a node is fenced (Fence): from that step
// on nothing is bound there. Against other schedulers it is tainted. Only then are its pods read once more from the API, and
// only if there are none the claim is deleted; otherwise fence and taint are taken back.
//
// It is not for node repair, and it evicts nothing.
package disruption
