// Package livecluster reads the objects of a running cluster on which plans and explanations depend, with the rights of the user who asks.
//
// It lists, and sends nothing else but the annotation of Retry. It keeps no cache and starts no goroutine: a look at the cluster is a value.
package livecluster
