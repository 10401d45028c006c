// Package cluster starts a Kubernetes control plane on the loopback interface: etcd, kube-apiserver with RBAC and, if wanted,
// kube-controller-manager, each in its own process. It installs the custom resources and the shipped manifests, and runs
// dovetail-scheduler against them under the shipped ServiceAccount. Integration tests, the demo and the sandbox use it.
//
// Every process is in its own process group, is stopped by Stop, and is killed by the kernel (on Linux) if the process that started it
// dies first.
//
// The package is not for clusters that should outlive the process that starts them. A cluster has no nodes: those come from test/ec2
// or are plain API objects that a test writes.
package cluster
