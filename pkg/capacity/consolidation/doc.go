// Package consolidation decides which used nodes to empty, so that the same pods cost less with as few pods moved as possible: a view of the
// cluster in, moves and reasons out. It is as pure as package capacity, whose values it uses; the time is an argument.
//
// A move empties one or more nodes. Their pods go to free capacity of other nodes, and to new nodes where that is still cheaper: it deletes
// a node, replaces one by one or by several, or several by fewer. Every candidate gets exactly one Move or one Kept, which says why it is
// kept, with numbers.
//
// What is cheapest is planned for the whole cluster in each pass, as if all of it were carried out at once, so that a pod counts once however
// many nodes the plan takes it over. Moving a pod costs something, too: a restart of the pod, and two nodes that are paid at the same time.
// A move is therefore due only when what it would have saved since it was first possible has paid for it (Accrual), which is ski rental: the
// cost of waiting and of moving together is at most twice that of the best decision in hindsight. With a restart cost of zero a move is due
// at once, as in Karpenter.
//
// The package needn't get every constraint right that kube-scheduler knows. It respects resources, node selectors and affinity, taints,
// volumes, host ports and anti-affinity between hosts. A pod with a hard constraint over other topology domains stays in its own domain.
// The scheduler's own filters verify what is proposed, and what they refuse is not proposed again (capacity.Options.Forbidden).
//
// A walk: Planner.Propose is the numbered list; cluster.go turns a view into numbers, kinds.go merges pods that the numbers can't tell apart,
// market.go lists what can be bought for them; trial.go finds out what emptying nodes would mean: fill.go puts their pods on existing nodes,
// new nodes are found for the rest; greedy.go empties nodes in order of what that saves per moved pod, groups.go several at a time;
// collapse.go turns the steps of the plan into moves; due.go chooses those that are due.
package consolidation
