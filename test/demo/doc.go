// Command demo shows the whole system on one machine: pods go in, nodes appear, pods run, pods leave, nodes end. etcd,
// kube-apiserver, kube-controller-manager and dovetail-scheduler are real processes; EC2 and the kubelets are simulated.
// At the end it checks what it has shown and exits non-zero if anything was not as it should be.
//
//	demo            the whole demonstration (make demo)
//	demo -sandbox   the same cluster, running until ctrl-C (make sandbox)
//
// Environment: DEMO_PODS (300), DEMO_CATALOG (a file for the simulator's instance types), DEMO_SPEED (10: boot and
// shutdown delays are divided by it), DEMO_DEADLINE (30m), DEMO_V (2: how much the scheduler logs).
//
// It is not a benchmark: everything shares one machine.
package main
