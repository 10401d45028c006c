// Command burst measures what bursts of pods cost, compared with one plan that knows all of their pods, and how long they take:
//
//	make burst
//	make burst BASELINE=/path/to/another/dovetail-scheduler PAIRS=5
//	make burst BURST_PODS=100,300,1000,5000
//
// Each run starts etcd, kube-apiserver, an EC2 simulator with kubelets that boot at once, and a dovetail-scheduler with the shipped
// configuration. Then it creates Deployments at once, whose pods kube-controller-manager's own controllers create as fast as they may write. A
// run ends when all pods are bound.
//
// By default bursts of 100 and 300 pods are run once each at every rate, without a baseline. Larger ones are run where -pods names them, unless their
// pods would arrive for more than 50 seconds (cases.go). Zone spread and anti-affinity are run at the highest rate only, sequences at
// one rate of at most 100.
//
// The cost is that of all instances that live then, as a ratio to the cost of the plan that pkg/offline makes for the same manifests with the
// same instance types: the product's own plan for all pods at once. With a baseline, each run is followed by one with that binary, so
// that what else the computer does slows both down; times are only compared within such a pair.
//
// The program fails if pods stay unbound, if instances end, although nothing disrupts them, and if figures are beyond their bounds (judge.go): costs
// always, times where there are three runs of each to compare. -judge=false applies no bounds. Deployments that took longer to create
// than a burst may take are reported and don't fail it: that is the computer's fault.
package main
