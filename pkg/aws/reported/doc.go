// Package reported remembers what kubelets have reported of the size of their nodes: the memory that hypervisor and kernel leave of an
// instance type, which is published nowhere, and what a class's kubelets keep from pods.
//
// Nodes of a type and image differ by a few pages, so the smallest of the last few counts. The package only remembers; nodesize
// computes with it.
package reported
