// Package record keeps everything that happens to API objects of some kinds, in the one order that all of them share: that
// of their resource versions, which are revisions of one etcd. Tests judge with it what was true at the moment of a write.
//
// It is not for waiting: cluster.Until is.
package record
