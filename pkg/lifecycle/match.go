package lifecycle

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// match says which of the cluster's Nodes belong to a claim. The Node objects are the informer's and must not be changed.
type match struct {
	// node is the claim's Node; nil: there is none.
	node *corev1.Node
	// stale are Nodes created ahead for an instance whose kubelet then registered under another name.
	stale []*corev1.Node
	// many: more than one kubelet has registered a Node as this instance.
	many bool
	// taken is a Node that has the name recorded for the claim and belongs to another instance. It is never adopted.
	taken *corev1.Node
}

// all returns the Nodes of the claim.
func (m match) all() []*corev1.Node {
	if m.node == nil {
		return m.stale
	}
	return append([]*corev1.Node{m.node}, m.stale...)
}

// matchNodes matches Nodes to a claim. Nodes with the claim's provider ID are its own. So is a Node without provider ID that is younger
// than the claim and has the instance's address: that of a kubelet without cloud provider, under an unexpected name.
func matchNodes(claim *karpv1.NodeClaim, sameID, sameIP []*corev1.Node, named *corev1.Node) match {
	var m match
	own := slices.Clone(sameID)
	for _, n := range sameIP {
		if n.Spec.ProviderID == "" && !n.CreationTimestamp.Before(&claim.CreationTimestamp) {
			own = append(own, n)
		}
	}
	if named != nil && !slices.ContainsFunc(own, func(n *corev1.Node) bool { return n.Name == named.Name }) {
		m.taken = named
	}
	slices.SortFunc(own, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range own {
		switch {
		case m.node == nil:
			m.node = n
		case objects.Posted(n) && objects.Posted(m.node):
			m.many = true
			m.stale = append(m.stale, n)
		case objects.Posted(n) || !objects.Posted(m.node) && n.Name == claim.Status.NodeName:
			m.stale = append(m.stale, m.node)
			m.node = n
		default:
			m.stale = append(m.stale, n)
		}
	}
	return m
}

// match finds a claim's Nodes in the informer.
func (n *nodes) match(claim *karpv1.NodeClaim) match {
	var named *corev1.Node
	if claim.Status.NodeName != "" {
		named, _ = n.lister.Get(claim.Status.NodeName)
	}
	if claim.Status.ProviderID == "" {
		return match{taken: named}
	}
	sameID := n.byProviderID(claim.Status.ProviderID)
	addresses := map[string]bool{n.sightings.address(capacity.InstanceID(claim.Status.ProviderID)): true}
	for _, n := range sameID {
		addresses[objects.InternalIP(n)] = true
	}
	delete(addresses, "")
	var sameIP []*corev1.Node
	for ip := range addresses {
		sameIP = append(sameIP, n.indexed(objects.IndexNodesByInternalIP, ip)...)
	}
	return matchNodes(claim, sameID, sameIP, named)
}
