// Package lifecycle takes a node from its launch to its termination, one small type and file per stage.
//
// It begins where pkg/launch ends: an instance runs, its NodeClaim is Launched, its Node object exists ahead of the kubelet. The stages of a
// claim, in the order in which they run (stages.go):
//
//	registration    the kubelet has posted its status: adds the finalizer, removes the unregistered taint
//	announcement    reports the registered node, once
//	initialization  Ready, startup taints gone, extended resources there
//	consistency     the node has what was bought
//	recreation      a Node that the cloud controller manager deletes before registration is created again under its name
//	leases          keeps the Node's Lease fresh until its kubelet renews it
//	bootingPods     pods deleted while their node boots end at once
//	tagging         the instance is tagged with its claim's and its node's name
//	podActivity     when a pod was last bound to the node or left it
//	consolidatable  whether that is long enough ago for the node's pool
//	drifting        whether the node is still what its pool would launch now
//	cascade         the deletion of the Node deletes the claim
//	liveness        launch, registration and (lateInitialization) initialization timeouts, instances that ended by themselves
//
// The only stage of a deleted claim is finalization: a claim deleted before its instance was known (unlaunched), or else the steps of a
// termination: cordon, drain, volumes, instance, Node. Beside the stages:
//
//	transform       what the scheduler sees of a node that is still starting
//	unclaimed       terminates a deleted Node whose claim is gone
//	garbage         instances without claims, and (reservationEnd) those that have left their capacity reservation
//	watcher         what changes of Nodes and pods concern
//
// A Controller works on one queue of claims (and of Nodes whose claim is gone). A stage has no lock: workers handle a claim one at a time. What
// stages remember between two calls is a memory, which locks itself. All state that matters is in the API; memories (sightings of instances,
// Leases, eviction back-off) may be lost at any moment.
//
// Nodes are read from the scheduler's informer, on which HideEphemeralTaints runs: these objects are never written back. Every write to a
// Node starts from a live read and is a patch with the resource version as precondition.
//
// It does not decide which nodes to disrupt (pkg/disruption), does not launch (pkg/launch), and knows no particular cloud: it uses the
// interface Cloud.
package lifecycle
