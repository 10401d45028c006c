// Package lookup keeps what was looked up for a node class: the last answer, when the next look-up is due, and whether the answer was
// definite.
package lookup
