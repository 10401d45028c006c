package objects

// The names under dovetail.sh that stand on objects, instances and indexes. They are declared here and nowhere else (internal/lint), and
// docs/names.md lists them for users.
//
// Each comment says who writes the name, who reads it and what the value looks like, and ends with how long name and value stay the same:
//
//	Stable.     Users and their tools may rely on name and value. Should one be renamed, its old spelling stays understood, with a warning.
//	Internal.   Written by Dovetail for itself. Name and value may change with any version; the version after reads them (renamed.go).
//	In memory.  Never written to the API server or the cloud. May change at any time.

// Domain is the domain of Dovetail's names; Prefix begins each of them.
const (
	Domain = "dovetail.sh"
	Prefix = Domain + "/"
)

// Annotations that users set.
const (
	// AnnotationBind on a Pod is written by its owner and read when the pod is planned for: "early", the only value, lets the pod be bound
	// before its node has registered although nobody would recreate it. Stable.
	AnnotationBind = "dovetail.sh/bind"
	// AnnotationMaxDollarsPerHour on a NodePool or Provisioner is written by its owner and read before nodes are bought: what all nodes of the
	// pool may cost, a decimal number of dollars per hour above zero, "12.50". Stable.
	AnnotationMaxDollarsPerHour = "dovetail.sh/max-dollars-per-hour"
	// AnnotationMove on a Deployment or Namespace is written by its owner and read when consolidation empties a node: with "rollout", the only
	// value (MoveRollout), a pod that is its Deployment's single replica, or that may not be evicted, is moved by a roll-out of the
	// Deployment. Stable.
	AnnotationMove = "dovetail.sh/move"
	// AnnotationNodeName on an EC2NodeClass is written by its owner and read when an instance is described: how kubelets of the class name
	// their Nodes, "private-dns", "short-dns" or "instance-id". Stable.
	AnnotationNodeName = "dovetail.sh/node-name"
	// AnnotationPauseDisruption on a NodePool or Provisioner is written by its owner and read before a node is disrupted: "true", or anything that isn't
	// a spelling of false, keeps all nodes of the pool. Stable.
	AnnotationPauseDisruption = "dovetail.sh/pause-disruption"
	// AnnotationRebalance on a NodePool, or in its template, is written by its owner and read when EC2 recommends to leave the spot capacity of its
	// nodes: "replace", the only value with an effect, has them replaced. Stable.
	AnnotationRebalance = "dovetail.sh/rebalance"
	// AnnotationRepair on a NodePool is written by its owner and read before its unhealthy nodes are repaired: "off", or tolerations by
	// condition, each a duration above zero or "off", "Ready=10m, KernelReady=off". Stable.
	AnnotationRepair = "dovetail.sh/repair"
	// AnnotationRestartCost on a NodePool, Namespace or Pod is written by its owner and read by consolidation: what restarting a pod costs, as the
	// time for which the pod could run for the same money, a duration of zero or more, "10m". Stable.
	AnnotationRestartCost = "dovetail.sh/restart-cost"
	// AnnotationRetry on a NodePool, EC2NodeClass, Provisioner, Deployment, ReplicaSet, StatefulSet or Job is written by its owner and read by the
	// spending guard: each new value, whatever it says, asks for a probe at once. Stable.
	AnnotationRetry = "dovetail.sh/retry"
	// AnnotationSpotFlexibility on a NodePool is written by its owner and read by consolidation: how many instance types must be cheaper
	// before a spot node is replaced by a spot node, a whole number above zero, "5". Stable.
	AnnotationSpotFlexibility = "dovetail.sh/spot-flexibility"
	// AnnotationZoneBalance on a NodePool or Provisioner is written by its owner and read before nodes are bought: the pool's new nodes are spread
	// evenly over zones, for which each may cost that much more than its cheapest offering, a percentage from "0%" to "100%", "10%". Stable.
	AnnotationZoneBalance = "dovetail.sh/zone-balance"
)

// MoveRollout is the value of AnnotationMove.
const MoveRollout = "rollout"

// Annotations that Dovetail writes.
const (
	// AnnotationLaunchBatch on a NodeClaim is written before its launch, and read after a restart and when its instance is looked for: the
	// capacity.LaunchBatch as JSON, or "gzip:" and the base64 of the compressed JSON. Internal.
	AnnotationLaunchBatch = "dovetail.sh/launch-batch"
	// AnnotationPlannedPods on a NodeClaim is written by the planner and read after a restart: the pods planned for its node,
	// []capacity.Slot in the same encoding. Internal.
	AnnotationPlannedPods = "dovetail.sh/planned-pods"
	// AnnotationLargestCapacity on a NodeClaim is written by the planner and read by the limits of its pool until it is launched: the most
	// that its instance may have of each resource, capacity.Resources in the same encoding. Internal.
	AnnotationLargestCapacity = "dovetail.sh/largest-capacity"
	// AnnotationPurchase on a NodeClaim is written and read by the spending guard: the round and the workloads its instance was launched for,
	// guard.Purchase in the same encoding. Internal.
	AnnotationPurchase = "dovetail.sh/purchase"
	// AnnotationInterrupted on a NodeClaim is written when the cloud announces the end of its instance, and read by disruption:
	// when the drain of the node begins at the latest and why, "2026-11-21T22:45:00Z SpotInterrupted". Internal.
	AnnotationInterrupted = "dovetail.sh/interrupted"
	// AnnotationRebalanceRecommended on a NodeClaim is written when EC2 first recommends to leave its instance's spot capacity, and read by
	// disruption: when that was. Internal.
	AnnotationRebalanceRecommended = "dovetail.sh/rebalance-recommended"
	// AnnotationForWantOfSpot on a NodeClaim is written by its launch and read by disruption: "true", it was bought on demand because no spot
	// capacity that fits was available. Internal.
	AnnotationForWantOfSpot = "dovetail.sh/for-want-of-spot"
	// AnnotationKept on a NodeClaim is written by consolidation, for people: why the node is not emptied, "Young: the node is new: ...".
	// Internal.
	AnnotationKept = "dovetail.sh/kept"
	// AnnotationKeptSince on a NodeClaim is written by consolidation together with AnnotationKept, for people: since when the node is kept for that
	// reason, RFC 3339. A reason that doesn't change isn't written again. Internal.
	AnnotationKeptSince = "dovetail.sh/kept-since"
	// AnnotationRollOut on a NodePool is written and read by disruption while nodes of the pool are drifted, and read by the pool status
	// controller: how far their replacement has come, karpenter.RollOut as JSON. Internal.
	AnnotationRollOut = "dovetail.sh/roll-out"
	// AnnotationFailed on a Node is written when its claim is given up and read by the transform of the scheduler's Node informer: why, a
	// sentence. All of the Node's taints are visible to the scheduler then. Internal.
	AnnotationFailed = "dovetail.sh/failed"
	// AnnotationGuard on a NodePool, EC2NodeClass or Provisioner is written and read by the spending guard: its breakers, JSON. Those of
	// a Dovetail with a name are in a ConfigMap instead. Internal.
	AnnotationGuard = "dovetail.sh/guard"
	// AnnotationUnread on a NodeClaim and its Node is written when it is launched: "true" if what starts the kubelet can't be read, so that
	// no pod is bound before it has registered. Internal.
	AnnotationUnread = "dovetail.sh/user-data-unread"
	// AnnotationCertainMemory on a NodeClaim and its Node is written when it is launched and no node of its instance type and image has shown its
	// memory yet: the share of the planned memory for pods that it has in any case, "0.946". Pods that need more of it are bound when the
	// kubelet has registered. Internal.
	AnnotationCertainMemory = "dovetail.sh/certain-memory"
	// AnnotationScope on the Lease of a Dovetail's leader election is written when a replica begins to lead, and read by other Dovetails
	// before they act: which schedulers' pods, node pools and queue are its own, peers.Scope as JSON. Internal.
	AnnotationScope = "dovetail.sh/scope"
	// AnnotationUndeclaredStartupTaints on a NodePool is written and read by the pool status controller: the taints that fresh nodes get
	// and the pool doesn't declare, []capacity.UndeclaredTaint as JSON. Internal.
	AnnotationUndeclaredStartupTaints = "dovetail.sh/undeclared-startup-taints"
	// AnnotationLearned on an EC2NodeClass is written and read by the cloud adapter (pkg/aws): the form of its nodes' names, their memory, and what
	// their kubelets keep from pods, by image and instance type, reported.Record as JSON. Internal.
	AnnotationLearned = "dovetail.sh/learned"
	// AnnotationDevices on an EC2NodeClass is written by its author: which devices of dynamic resource allocation its nodes have, by instance
	// type, as YAML. Stable.
	AnnotationDevices = "dovetail.sh/devices"
)

// Annotations that only objects in memory have.
const (
	// AnnotationMalformed is put on an object that could not be decoded, and read by validation: why, by field. In memory.
	AnnotationMalformed = "dovetail.sh/malformed"
	// AnnotationUnhonored is put on a NodePool that was derived from a Provisioner, and read by its status: settings of the Provisioner that
	// have no effect. In memory.
	AnnotationUnhonored = "dovetail.sh/unhonored"
	// AnnotationOrigin is put on a derived NodePool or EC2NodeClass, and read for messages: the user's name of what it comes from. In memory.
	AnnotationOrigin = "dovetail.sh/origin"
	// AnnotationLaunchTemplate is put on an EC2NodeClass that was derived from an AWSNodeTemplate or provider with a launchTemplate, and
	// read at launch: the name of that launch template, which is used as it is. In memory.
	AnnotationLaunchTemplate = "dovetail.sh/launch-template"
	// AnnotationHiddenTaints is put on a Node by the transform of the scheduler's informer, and read by Filter and lifecycle: the taints that
	// the transform has taken out of spec.taints, as JSON. In memory.
	AnnotationHiddenTaints = "dovetail.sh/hidden-taints"
)

// LabelSchedule on a Namespace is written by its owner and read by the admission policy of manifests/secondary/optional: "true" has pods
// that name no scheduler scheduled by Dovetail. Stable.
const LabelSchedule = "dovetail.sh/schedule"

// LabelManagedBy on a NodeClaim and its Node is written by a Dovetail with a name: the name. An author of a NodeClaim writes it to have it launched
// by that Dovetail. Every Dovetail reads it: objects with another name than its own, or with any name if it has none, belong to another Dovetail. A
// replica that begins to lead writes it on the Lease of its leader election; the value is empty if its Dovetail has no name. Stable.
const LabelManagedBy = "dovetail.sh/managed-by"

// TagManagedBy on what a launch creates in EC2 (instances, volumes, fleets, launch templates) is written by a Dovetail with a name: the name.
// Every Dovetail reads it before it removes unused instances and launch templates. Stable.
const TagManagedBy = "dovetail.sh/managed-by"

// TagLaunchBatch on EC2 instances, volumes and fleets is written by the launch, and read when the instances of a launch batch are looked for because
// the answer to its call was lost: the token of the launch batch. Internal.
const TagLaunchBatch = "dovetail.sh/launch-batch"

// Condition types.
const (
	// ConditionFieldsHonored on a NodePool or Provisioner is written by the pool status controller: False while a field that is set has no
	// effect and something is lost by that. Stable.
	ConditionFieldsHonored = "dovetail.sh/FieldsHonored"
	// ConditionLaunchesPaused on a NodePool, EC2NodeClass or Provisioner is written by the status controller of its kind. It is present,
	// and True, only while the spending guard pauses launches. Stable.
	ConditionLaunchesPaused = "dovetail.sh/LaunchesPaused"
	// ConditionBudgetReached on a NodePool or Provisioner is written by the pool status controller. It is present, and True, only while a
	// budget keeps nodes from being bought. Stable.
	ConditionBudgetReached = "dovetail.sh/BudgetReached"
	// ConditionRollOutPaused on a NodePool is written by the pool status controller. It is present, and True, only while drifted nodes are not
	// replaced because new nodes didn't prove to work, or drift at once. Stable.
	ConditionRollOutPaused = "dovetail.sh/RollOutPaused"
	// ConditionStartupTaintsDeclared on a NodePool or Provisioner is written by the pool status controller. It is present, and False, only
	// while new nodes get NoExecute taints that the pool doesn't declare. Stable.
	ConditionStartupTaintsDeclared = "dovetail.sh/StartupTaintsDeclared"
	// ConditionArchitectureDeclared on a NodePool or Provisioner is written by the pool status controller. It is present, and False, only
	// while neither the pool nor pods that its nodes are planned for say whether they may be arm64. Stable.
	ConditionArchitectureDeclared = "dovetail.sh/ArchitectureDeclared"
	// ConditionServed on a NodeClaim is written by the spending guard, and read by it after a restart: True once its instance has done
	// what it was launched for. Stable.
	ConditionServed = "dovetail.sh/Served"
	// ConditionInitializationDelayed on a NodeClaim is written by lifecycle. It is present, and True, only while its node is kept although
	// it should have been initialized. Stable.
	ConditionInitializationDelayed = "dovetail.sh/InitializationDelayed"
)

// Names of informers' indexes, and the key of Binder's fragment in pod signatures (SignPod). Other components in the process add indexes
// and fragments, too, so these names have our prefix.
const (
	// IndexNodesByProviderID of the Node informer, by spec.providerID. In memory.
	IndexNodesByProviderID = "dovetail.sh/nodes-by-provider-id"
	// IndexNodesByInternalIP of the Node informer, by the first internal address. In memory.
	IndexNodesByInternalIP = "dovetail.sh/nodes-by-internal-ip"
	// IndexPodsByNode of the Pod informer, by spec.nodeName. In memory.
	IndexPodsByNode = "dovetail.sh/pods-by-node"
	// IndexCSINodesByDriver of the CSINode informer, by the names of its drivers. In memory.
	IndexCSINodesByDriver = "dovetail.sh/csi-nodes-by-driver"
	// IndexCapacitiesByStorageClass of the CSIStorageCapacity informer, by storageClassName. In memory.
	IndexCapacitiesByStorageClass = "dovetail.sh/capacities-by-storage-class"
	// IndexCapacitiesByNodeLabel of the CSIStorageCapacity informer, by labels such that each node in the object's nodeTopology has at least one of
	// them. In memory.
	IndexCapacitiesByNodeLabel = "dovetail.sh/capacities-by-node-label"
	// SignatureEquivalenceClass is the key of Binder's fragment of a pod's signature; its value is the equivalence class. In memory.
	SignatureEquivalenceClass = "dovetail.sh/equivalence-class"
)
