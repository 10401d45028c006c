package lifecycle

// Annotations and labels of our own domain, and those of Kubernetes that have no constant in its API packages.
const (
	// AnnotationHiddenTaints is in memory only: the taints HideEphemeralTaints took out of spec.taints, as JSON.
	AnnotationHiddenTaints = "dovetail.sh/hidden-taints"
	// AnnotationFailed on a Node says why it will not come up; the scheduler then sees all of its taints.
	AnnotationFailed = "dovetail.sh/failed"
	// ConditionInitializationDelayed on a NodeClaim says that its node is kept although it should have been initialized.
	ConditionInitializationDelayed = "dovetail.sh/InitializationDelayed"
	// AnnotationTagged on a NodeClaim says that its instance carries the names of claim and node.
	AnnotationTagged = "karpenter.k8s.aws/tagged"

	// ownDomain prefixes annotations that stay on the claim and are not copied to its Node.
	ownDomain = "dovetail.sh/"

	labelExcludeDisruption = "node.kubernetes.io/exclude-disruption"
	taintUninitialized     = "node.cloudprovider.kubernetes.io/uninitialized"
	// taintReadinessPrefix begins the keys of the Node Readiness Controller's taints.
	taintReadinessPrefix = "readiness.k8s.io/"
)
