// Package integration tests all of Dovetail with real components: an API server and etcd in the test's process, the built scheduler as
// a process under the shipped RBAC and configuration, and the EC2 simulator with its simulated kubelets. The scheduler gets no
// information that it would not get in a cluster; what it did is read from API objects, its metrics and the simulator's journal.
package integration
