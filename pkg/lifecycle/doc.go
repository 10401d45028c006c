// Package lifecycle takes a node from its launch to its termination, one small file per stage.
//
// It begins where pkg/launch ends: an instance runs, its NodeClaim is Launched, its Node object exists ahead of the kubelet.
//
//	transform       what the scheduler sees of a node that is still starting
//	lease           keeps the Node's Lease fresh until its kubelet renews it
//	recreate        a Node that the cloud controller manager deletes before registration is created again under its name
//	boot            pods deleted while their node boots end at once
//	registration    the kubelet has posted its status: adds the finalizer, removes the unregistered taint
//	initialization  Ready, startup taints gone, extended resources there
//	consistency     the node has what was bought
//	liveness        launch, registration and initialization timeouts, instances that ended by themselves
//	tagging         the instance is tagged with its claim's and its node's name
//	podevents       when a pod was last bound to the node or left it
//	consolidatable  whether that is long enough ago for the node's pool
//	termination     cordon, drain, volumes, instance, finalizers; after a deletion of the claim or of the Node
//	unlaunched      a claim deleted before its instance was known
//	garbage         instances without claims
//
// A Controller works on one queue of claims (and of Nodes whose claim is gone). All state that matters is in the API; what is kept in
// memory (sightings of instances, Leases, eviction back-off) may be lost at any moment.
//
// Nodes are read from the scheduler's informer, on which HideEphemeralTaints runs: these objects are never written back. Every write to a
// Node starts from a live read and is a patch with the resource version as precondition.
//
// It does not decide which nodes to disrupt (pkg/disruption), does not launch (pkg/launch), and knows no particular cloud: it uses the
// interface Cloud.
package lifecycle
