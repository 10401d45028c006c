package lifecycle

// Annotations, labels and taints of Karpenter and Kubernetes that have no constant in their API packages.
const (
	// AnnotationTagged on a NodeClaim says that its instance carries the names of claim and node.
	AnnotationTagged = "karpenter.k8s.aws/tagged"

	labelExcludeDisruption = "node.kubernetes.io/exclude-disruption"
	// taintReadinessPrefix begins the keys of the Node Readiness Controller's taints.
	taintReadinessPrefix = "readiness.k8s.io/"
)
