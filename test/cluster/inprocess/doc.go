// Package inprocess runs etcd and kube-apiserver inside the test's own process, for tests that want no process but their
// own: a debugger's breakpoints and the race detector then reach the API server too.
//
// Importing it links kube-apiserver into the test binary, so it is a package of its own; a test that doesn't need this
// uses cluster.Start, which is up as fast and can run kube-controller-manager.
package inprocess
