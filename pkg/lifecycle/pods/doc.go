// Package pods says what a pod means to the termination of its node: whether the node is empty without it, and whether a drain evicts it,
// waits for it or ignores it. It has pure functions of a pod, and the index that finds a node's pods.
//
// It doesn't schedule: nothing here decides where a pod may run.
package pods
