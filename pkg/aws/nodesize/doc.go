// Package nodesize predicts what a node will report before there is one: capacity, allocatable and the number of volumes, from an
// instance type, the image family, the kubelet settings of the node class and how the CNI gives addresses to pods.
//
// It makes no request and learns nothing: memory that nodes have reported is given to Settings.Size.
package nodesize
