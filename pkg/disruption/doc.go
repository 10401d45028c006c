// Package disruption decides which nodes should go, and when. Ending them is not its business: it deletes NodeClaims, and
// pkg/lifecycle does the rest.
//
// A Controller goes through the cluster in passes, one at a time, every few seconds and when something is due. A pass looks
// at everything once, asks one method after another for nodes that may go, and ends those that the budgets of their pool
// allow:
//
//	emptiness   nodes without pods of their own for consolidateAfter
//
// Between the decision and the deletion a pod may come. Against our own scheduler a node is fenced (Fence): from that step
// on nothing is bound there. Against other schedulers it is tainted. Only then are its pods read once more from the API, and
// only if there are none the claim is deleted; otherwise fence and taint are taken back.
//
// It is not for node repair or expiry by force, and it evicts nothing.
package disruption
