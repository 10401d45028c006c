// Command rollout replaces the nodes of a large cluster on a real API server, and judges from outside how that is done:
//
//	make rollout
//	go run ./test/rollout -pools 3 -nodes 4 -hold 1m
//
// etcd, kube-apiserver, kube-controller-manager and the scheduler are processes; instances and kubelets are simulated, and boot fast.
//
//  1. Ten pools have 50 nodes each, with a Deployment with one pod per node. Each pool's budget is 10 %.
//  2. EC2 has no capacity any more for the instance type of the first pool, and the class's user data is edited. The other pools are rolled out
//     in the time that their budgets need. Each of their pods moves exactly once, and none of the first pool.
//  3. What is edited in these pools then drifts nothing: budgets, consolidateAfter, weight, limits.
//  4. The capacity comes back, and the first pool is rolled out.
//
// Every write of pods, nodes, claims and pools is recorded, and judged in its order (package outside): when a pod was evicted, there was room for
// it on nodes that were Ready; never were more of a pool's nodes going than its budget allows; no claim was lost.
//
// With -scalein it empties used nodes instead:
//
//	make scalein
//	go run ./test/rollout -scalein -nodes 20
//
// 40 % of the pods of 200 nodes are scaled in. The scheduler is killed several times meanwhile. After 45 minutes at most the bill is within 3 %
// of a fresh plan: of what the product buys for the same pods in the same cluster without nodes, which is measured first.
//
// It exits with 1 if anything is wrong.
package main
