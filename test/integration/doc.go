// Package integration tests the whole of Dovetail on real parts: an API server and etcd in the test's process, the built
// scheduler as a process under the shipped RBAC and configuration, and the EC2 simulator with its light kubelets. The
// scheduler is told nothing it would not be told on a cluster; what it did is read from API objects, its metrics and the
// simulator's journal.
package integration
