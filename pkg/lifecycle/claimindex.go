package lifecycle

import (
	"slices"
	"sync"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// claimIndex remembers which claim a Node may belong to. Safe for concurrent use.
type claimIndex struct {
	mu         sync.Mutex
	byProvider map[string]string    // provider ID: claim
	byNode     map[string]string    // node name: claim
	known      map[string][2]string // claim: provider ID, node name
	missed     map[string]time.Time // claim: since when its registered Node has not been there
	ended      map[string]bool      // claim: its end was told
	came       map[string]bool      // claim: that its kubelet came was told
}

func newClaimIndex() *claimIndex {
	return &claimIndex{byProvider: map[string]string{}, byNode: map[string]string{}, known: map[string][2]string{},
		missed: map[string]time.Time{}, ended: map[string]bool{}, came: map[string]bool{}}
}

// end notes that a claim has ended, and is false when that was noted before.
func (x *claimIndex) end(claim string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.ended[claim]
	x.ended[claim] = true
	return !before
}

// arrive notes that the kubelet of a claim has come, and is false when that was noted before.
func (x *claimIndex) arrive(claim string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.came[claim]
	x.came[claim] = true
	return !before
}

// missing remembers since when a claim's Node has not been there.
func (x *claimIndex) missing(claim string, now time.Time) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	since, ok := x.missed[claim]
	if !ok {
		since = now
		x.missed[claim] = since
	}
	return since
}

func (x *claimIndex) found(claim string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.missed, claim)
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

// forget drops a claim and returns what was known of it.
func (x *claimIndex) forget(claim string) (providerID, nodeName string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.known[claim]
	x.drop(claim)
	delete(x.missed, claim)
	delete(x.ended, claim)
	delete(x.came, claim)
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

// find are the claims a Node concerns: its instance's, and the one that is waiting for its name.
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
