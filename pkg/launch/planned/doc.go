// Package planned derives from a planned node what is said and written about it before it is launched: the event on its pods, the annotations of its
// claim, and which nodes boot alike or may share a launch.
package planned
