// Package surge moves pods by a roll-out of their Deployment instead of an eviction, where Deployment or namespace asks for it
// (objects.AnnotationMove): of a single replica, and of pods whose PodDisruptionBudget allows no eviction. The roll-out creates the new pod before
// the old one ends.
//
// It knows which pods ask for that and why it can't be made now (Requests), whether Dovetail has the right to patch Deployments (Right), and
// restarts a Deployment (Requests.Restart). When a node is emptied, and where the new pods go, is decided by others (pkg/disruption, pkg/moves).
//
// A Deployment is patched once per move, and never in a loop: not within restartRest of its last restart, whoever made it, and after a move that
// failed only after a back-off that doubles.
package surge
