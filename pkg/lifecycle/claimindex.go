package lifecycle

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// claimIndex remembers to which claim a Node may belong. Safe for concurrent use.
type claimIndex struct {
	mu         sync.Mutex
	byProvider map[string]string    // provider ID: claim
	byNode     map[string]string    // node name: claim
	known      map[string][2]string // claim: provider ID, node name
	missed     map[string]time.Time // claim: since when its registered Node has been missing
	told       map[string]milestone // claim: what has been reported about it
	tagAt      map[string]time.Time // claim: when to tag its instance again after a refusal
	booting    map[string]booting   // claim: its Node that has no kubelet yet
}

// booting is a Node that was created ahead of its kubelet, as this leader last saw it.
type booting struct {
	uid types.UID // empty: not known, or its absence means nothing
	// since is when it was first missed; zero: it exists.
	since time.Time
}

func newClaimIndex() *claimIndex {
	return &claimIndex{byProvider: map[string]string{}, byNode: map[string]string{}, known: map[string][2]string{},
		missed: map[string]time.Time{}, told: map[string]milestone{}, tagAt: map[string]time.Time{}, booting: map[string]booting{}}
}

// milestone is a set of things that are reported and counted once per claim, however often a stage is repeated because its outcome could
// not be written, or because the cache doesn't show it yet.
type milestone uint8

const (
	toldCame        milestone = 1 << iota // its kubelet registered, as reported to Config.Registered
	toldRegistered                        // it was registered
	toldInitialized                       // it was initialized
	toldDelayed                           // it is late, and not given up yet
	toldGivingUp                          // it is about to be given up, and why
	toldUntagged                          // its instance can't be tagged
	toldGivenUp                           // it was given up
	toldEnded                             // it has ended
)

// first marks a milestone as reported, and returns false if it was before.
func (x *claimIndex) first(claim string, what milestone) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.told[claim]&what != 0
	x.told[claim] |= what
	return !before
}

// size returns the number of claims.
func (x *claimIndex) size() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.known)
}

// missing returns since when a claim's Node has been missing: now, on the first call.
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

// tagLater postpones the next tagging of a claim's instance; tagIn returns how long.
func (x *claimIndex) tagLater(claim string, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tagAt[claim] = at
}

func (x *claimIndex) tagIn(claim string, now time.Time) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return max(0, x.tagAt[claim].Sub(now))
}

func (x *claimIndex) found(claim string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.missed, claim)
}

// here remembers the Node of a claim. An empty uid: its absence means nothing.
func (x *claimIndex) here(claim string, uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.booting[claim] = booting{uid: uid}
}

// vanished returns the claim's Node as it was last seen, empty if it never was, and since when it has been missing.
func (x *claimIndex) vanished(claim string, now time.Time) (types.UID, time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.booting[claim]
	if b.uid != "" && b.since.IsZero() {
		b.since = now
		x.booting[claim] = b
	}
	return b.uid, b.since
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
	delete(x.missed, claim)
	delete(x.told, claim)
	delete(x.tagAt, claim)
	delete(x.booting, claim)
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
