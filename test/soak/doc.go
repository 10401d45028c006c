// Command soak runs the scheduler for a long time with many nodes under load, and checks that its resource use doesn't grow: memory,
// goroutines, queues, and the number of requests per pod.
//
//	make soak
//	SOAK_NODES=200 SOAK_MINUTES=2 make soak
//
// etcd, kube-apiserver and the scheduler are processes; instances and kubelets are simulated. A static pool keeps the nodes, so each
// has a NodeClaim and an instance that the scheduler manages. The load has three parts on one cluster:
//
//	pods   pods are created and deleted; all of them fit on existing nodes
//	nodes  half as long: pods are created in bursts; each needs its own node, which is removed after it
//	plain  the first part again, with the same binary but without our plugins, which makes it kube-scheduler
//
// All measurements come from the scheduler's /metrics. A part is judged by what has changed between its second quarter and its last.
//
// It is not a benchmark: it doesn't measure how fast anything is.
package main
