// Command scale measures the scheduler in clusters of thousands of nodes, each of which is Dovetail's own, and what grows with them:
//
//	make scale
//	make scale PART=memory MEMORY_NODES=5000,15000
//
// It has two parts, with several sizes each:
//
//	api-server  etcd and kube-apiserver are processes; at the largest size the leader changes
//	memory      test/kubeapi, an API server in memory, serves the scheduler over HTTP, so that the computer can hold more
//
// The scheduler is a process with the shipped configuration, instances are those of the EC2 simulator, kubelets are light ones. The scheduler
// launches a node in each zone. All others are copies of these: an instance, a NodeClaim and a Node that are written directly, with bound pods,
// while no scheduler runs (clone.go). At each size a scheduler is started, pods are created at a rate and deleted after a while, a burst of pods
// that fit on no node comes meanwhile, and in the end all of these pods are deleted, and their nodes have to end (point.go).
//
// In the end it prints a table and what grows faster than the number of nodes. The program fails if pods are lost, if instances are launched that
// no pod needs, if instances leak or end that shouldn't, or if a scheduler exits (judge.go). It judges no time. docs/scale.md explains the figures.
package main
