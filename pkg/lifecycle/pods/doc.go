// Package pods says what a pod means to the end of its node: whether the node is empty without it, whether a drain evicts it,
// waits for it or passes it by. Pure questions about a pod, and the index that finds a node's pods.
//
// It is not for scheduling: nothing here decides where a pod may run.
package pods
