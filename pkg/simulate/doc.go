// Package simulate asks the profile's own PreFilter and Filter plugins whether a plan would work, before anything is launched: on a
// snapshot of the scheduler's cache, plus nodes that don't exist yet, plus pods with reserved capacity.
//
// A World is a second framework beside the running one, built from the same profile with PreFilter and Filter only. Verify replays a
// plan in bind order and names every step that kube-scheduler would refuse. It agrees with a replay that runs PreFilter and Filter
// again for every pod, at a small part of its cost: PreFilter runs once per class, and the plugins' own AddPod updates each class with
// every placement. For most pods PreFilter sees only the nodes that matter to the plan's: see near.go. Where AddPod alone is not exact, this package corrects the difference: see spread.go (the minimum of topology
// spread) and class.go (plugins that skipped themselves).
//
// Nodes returns the same snapshot as capacity.Nodes, and ObserveNodes reports when the scheduler's cache, and not just an informer,
// has a node.
//
// The package does not choose nodes, score or preempt. It never reserves, permits or binds, and changes nothing outside itself.
//
// Limits: HTTP extenders are not part of the framework. Statically provisioned volumes (and devices, if Config.Devices is nil) are assigned when the
// scheduler reserves them, so two steps may get the same one. For a node without a CSINode, NodeVolumeLimits has no attach limit: the planner
// applies the limit of the instance type. In the same way VolumeBinding finds enough capacity on a hypothetical node for volumes with
// node-local storage: the planner applies the capacity that other nodes have published.
package simulate
