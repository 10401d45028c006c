// Package sandbox runs the whole system on the loopback interface: a control plane, the EC2 simulator with kubelets on its instances,
// dovetail-scheduler as a process, and the shipped example pools. The demo and integration tests start from it.
//
// It is not for tests of one part: those need no cluster, or only test/cluster or test/ec2.
package sandbox
