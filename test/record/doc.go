// Package record records every change of API objects of some kinds, in the one order that they share: that of their resource versions,
// which are revisions of one etcd. From it, tests can tell what was true at the time of a write.
//
// It is not for waiting; use cluster.Until.
package record
