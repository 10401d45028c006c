// Package cluster starts a Kubernetes control plane on loopback: etcd, kube-apiserver with RBAC and, if wanted,
// kube-controller-manager, each a process of its own; installs the custom resources and the shipped manifests; and runs
// dovetail-scheduler against it under the shipped ServiceAccount. Integration tests, the demo and the sandbox use it.
//
// Every process is in a process group of its own, ends with Stop, and is killed by the kernel (on Linux) if the process
// that started it dies first.
//
// It is not for anything that should outlive its starter, and it has no nodes: those come from test/ec2 or are plain API
// objects that a test writes.
package cluster
