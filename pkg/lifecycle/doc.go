// Package lifecycle walks a node from its launch to its end, one small file per stage.
//
// It begins where pkg/launch ends: an instance runs, its NodeClaim is Launched, its Node object exists ahead of the kubelet.
//
//	transform       what the scheduler sees of a node that is still coming up
//	lease           keeps the Node quiet until its kubelet renews the Lease itself
//	recreate        a Node that the cloud controller manager deletes before registration comes back under the same name
//	boot            pods deleted while their node boots end at once
//	registration    the kubelet has posted: finalizer on, unregistered taint off
//	initialization  Ready, startup taints gone, extended resources there
//	consistency     the node has what was bought
//	liveness        launch, registration and initialization timeouts, instances that died underneath
//	tagging         the instance carries its claim's and its node's name
//	podevents       when something last came to or left the node
//	consolidatable  whether that is long enough ago for the node's pool
//	termination     cordon, drain, volumes, instance, finalizers; from either end
//	unlaunched      a claim deleted before anybody knew its instance
//	garbage         instances without claims
//
// A Controller works on one queue of claims (and of Nodes whose claim is gone). All state that matters is in the API; what
// is kept in memory (sightings of instances, held Leases, eviction back-off) may be lost at any moment.
//
// Nodes are read from the scheduler's informer, on which HideEphemeralTaints runs: they are never written back. Every
// write to a Node starts from a live read and is a patch with the resource version as precondition.
//
// It is not for deciding which node should go (pkg/disruption), for launching (pkg/launch), or for knowing one cloud
// from another: what it needs of a cloud is the interface Cloud.
package lifecycle
