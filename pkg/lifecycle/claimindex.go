package lifecycle

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// claimIndex finds the claims that a Node may belong to, by provider ID and by Node name. Safe for concurrent use.
type claimIndex struct {
	mu         sync.Mutex
	byProvider map[string]string    // provider ID: claim
	byNode     map[string]string    // node name: claim
	known      map[string][2]string // claim: provider ID, node name
}

func newClaimIndex() *claimIndex {
	return &claimIndex{byProvider: map[string]string{}, byNode: map[string]string{}, known: map[string][2]string{}}
}

// size returns the number of claims.
func (x *claimIndex) size() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.known)
}

func (x *claimIndex) observe(claim *karpv1.NodeClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(claim.Name)
	x.known[claim.Name] = [2]string{claim.Status.ProviderID, claim.Status.NodeName}
	if id := claim.Status.ProviderID; id != "" {
		x.byProvider[id] = claim.Name
	}
	if name := claim.Status.NodeName; name != "" {
		x.byNode[name] = claim.Name
	}
}

// forget drops a claim and returns what was known about it.
func (x *claimIndex) forget(claim string) (providerID, nodeName string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.known[claim]
	x.drop(claim)
	return k[0], k[1]
}

func (x *claimIndex) drop(claim string) {
	k, ok := x.known[claim]
	if !ok {
		return
	}
	delete(x.known, claim)
	if x.byProvider[k[0]] == claim {
		delete(x.byProvider, k[0])
	}
	if x.byNode[k[1]] == claim {
		delete(x.byNode, k[1])
	}
}

// find returns the claims that a Node may concern: the one with its provider ID, and the one whose status.nodeName is its name.
func (x *claimIndex) find(providerID, nodeName string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []string
	if name, ok := x.byProvider[providerID]; ok {
		out = append(out, name)
	}
	if name, ok := x.byNode[nodeName]; ok && !slices.Contains(out, name) {
		out = append(out, name)
	}
	return out
}

// of returns the claims that the Node may belong to. A claim of another instance, which waits for the Node's name to be free, is not among them.
func (x *claimIndex) of(node *corev1.Node) []string {
	if node.Spec.ProviderID == "" {
		return x.find("", node.Name)
	}
	return x.find(node.Spec.ProviderID, "")
}
