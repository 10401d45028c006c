// Command soak runs the scheduler for long on many nodes that are kept busy, and looks whether it stays as it was: memory,
// goroutines, queues, and how many requests each pod costs.
//
//	make soak
//	SOAK_NODES=200 SOAK_MINUTES=2 make soak
//
// etcd, kube-apiserver and the scheduler are processes; instances and kubelets are simulated. A static pool keeps the nodes,
// so each has a NodeClaim and an instance that are looked after. It runs in three parts on one cluster:
//
//	pods   pods come and go, all of which fit
//	nodes  half as long: pods come in bursts, each needs a machine of its own, which goes with it
//	plain  the first part again with the same binary without our plugins, which makes it kube-scheduler
//
// Everything it judges by is what the scheduler says at /metrics. A part is judged by what has changed between its second
// quarter and its last.
//
// It is not a benchmark: nothing here is about how fast anything is.
package main
