// Package inprocess runs etcd and kube-apiserver inside the test's own process, so that a debugger's breakpoints and the race detector
// reach the API server too.
//
// Importing it links kube-apiserver into the test binary, so it is a separate package. A test that doesn't need this uses
// cluster.Start, which starts as fast and can run kube-controller-manager.
package inprocess
