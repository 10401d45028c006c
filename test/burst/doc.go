// Command burst measures what bursts of pods cost, compared with one plan that knows all of their pods, and how long they take:
//
//	make burst
//	make burst BASELINE=/path/to/another/dovetail-scheduler PAIRS=5
//
// Each run starts etcd, kube-apiserver, an EC2 simulator with kubelets that boot at once, and a dovetail-scheduler with the shipped
// configuration. Then it creates Deployments, whose pods kube-controller-manager's own controllers create as fast as they may write. A
// run ends when all pods are bound.
//
// The cost is that of all instances that live then, as a ratio to the cost of the plan that pkg/offline makes for the same manifests with the
// same instance types: the product's own plan for all pods at once. With a baseline, each run is followed by one with that binary, so
// that what else the computer does slows both down; times are only compared within such a pair.
//
// The program fails if pods stay unbound. It judges no figure.
package main
