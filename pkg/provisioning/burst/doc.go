// Package burst decides when the demand of a burst is planned for, and which of the planned nodes are launched before its end: those that are
// full. The others, the tail of the plan, wait for pods that would share a cheaper node with theirs.
package burst
