// Command demo shows the whole system on one host: pods are created, nodes appear, the pods run, pods are deleted, and nodes are
// terminated. etcd, kube-apiserver, kube-controller-manager and dovetail-scheduler are real processes; EC2 and the kubelets are
// simulated. At the end it checks the result and exits non-zero if it found a fault.
//
//	demo            the whole demonstration (make demo)
//	demo -sandbox   the same cluster, running until ctrl-C (make sandbox)
//
// Environment: DEMO_PODS (300), DEMO_CATALOG (a file for the simulator's instance types), DEMO_SPEED (10: boot and shutdown delays are
// divided by it), DEMO_DEADLINE (30m), DEMO_V (2: the scheduler's log verbosity).
//
// It is not a benchmark, because everything shares one host.
package main
