package lifecycle

// Annotations and labels of our own domain, and those of Kubernetes that have no constant in its API packages.
const (
	// AnnotationHiddenTaints exists in memory only: the taints that HideEphemeralTaints took out of spec.taints, as JSON.
	AnnotationHiddenTaints = "dovetail.sh/hidden-taints"
	// AnnotationFailed on a Node says why the Node was given up; the scheduler then sees all of its taints.
	AnnotationFailed = "dovetail.sh/failed"
	// ConditionInitializationDelayed on a NodeClaim says that its node is kept although its initialization is late.
	ConditionInitializationDelayed = "dovetail.sh/InitializationDelayed"
	// AnnotationTagged on a NodeClaim says that its instance is tagged with the names of claim and node.
	AnnotationTagged = "karpenter.k8s.aws/tagged"

	// ownDomain prefixes annotations that stay on the claim and are not copied to its Node.
	ownDomain = "dovetail.sh/"

	labelExcludeDisruption = "node.kubernetes.io/exclude-disruption"
	taintUninitialized     = "node.cloudprovider.kubernetes.io/uninitialized"
	// taintReadinessPrefix begins the keys of the Node Readiness Controller's taints.
	taintReadinessPrefix = "readiness.k8s.io/"
)
