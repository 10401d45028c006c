// Package simulate asks the profile's real PreFilter and Filter plugins whether a plan would work, before money is
// spent: on a snapshot of the scheduler's cache, plus nodes that don't exist yet, plus pods that are promised room.
//
// A World is a second framework beside the running one, built from the same profile with PreFilter and Filter only.
// Verify replays a plan in bind order and names every step that kube-scheduler would refuse. It agrees with a replay
// that runs PreFilter and Filter afresh for every pod, at a small part of its cost: PreFilter runs once per class, and
// every placement is told to the classes by the plugins' own AddPod. Where AddPod alone is not exact the difference is
// made up for here: see spread.go (the minimum of topology spread) and class.go (plugins that skipped themselves).
//
// Nodes gives the same snapshot in the planner's words, and ObserveNodes tells when the scheduler's cache, not just an
// informer, knows a node.
//
// What it is not for: choosing nodes, scoring, preemption. It never reserves, permits or binds, and changes nothing
// outside itself.
//
// What it can't see: HTTP extenders are not part of the framework. Devices and statically provisioned volumes are
// handed out when the scheduler reserves them, so two steps may be granted the same one. A node without a CSINode has
// no attach limit for NodeVolumeLimits: the planner applies the limit of the instance type. In the same way VolumeBinding finds room on a
// node that isn't there yet for volumes whose storage capacity follows the node: the planner knows what other nodes have shown.
package simulate
