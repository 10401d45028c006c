package drift

import (
	"hash/fnv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// memory remembers the last comparison of each claim with its pool and node class, so that it isn't repeated whenever a pod of the node comes
// or goes. It may be lost at any moment.
type memory struct {
	mu     sync.Mutex
	claims map[string]compared
	pools  map[string]source
	// revisions holds, by pool, the number of the version of its source in pools. Numbers are never used twice, also not by different pools: so
	// a pool that is deleted and created again has another number, and its claims are compared again.
	revisions map[string]uint64
	revision  uint64 // the highest number so far
	// drifted is the number of drifted claims by pool and reason, as the metric reports it.
	drifted map[series]int
	// next is the earliest time at which the next change of a condition may be written.
	next time.Time
}

// compared is the last comparison of a claim.
type compared struct {
	key    key
	at     time.Time
	reason cloudprovider.DriftReason
	turn   time.Time // the earliest time at which the claim's condition may be changed; changes of many claims are spread over time
}

// key is what the result of a comparison depends on, apart from the instance.
type key struct {
	uid                     types.UID
	pool                    string
	revision                uint64
	poolHash, poolVersion   string
	classHash, classVersion string
	image                   string
	labels                  uint64 // the sum of the hashes of the claim's labels, so that their order doesn't matter
}

type series struct {
	pool   string
	reason cloudprovider.DriftReason
}

func newMemory() *memory {
	return &memory{claims: map[string]compared{}, pools: map[string]source{}, revisions: map[string]uint64{}, drifted: map[series]int{}}
}

func (m *memory) keyOf(claim *karpv1.NodeClaim, pool string, k *cloudprovider.NodeClassKind) key {
	a := claim.Annotations
	var labels uint64
	for name, value := range claim.Labels {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name + "=" + value)) // never fails
		labels += h.Sum64()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return key{labels: labels, uid: claim.UID, pool: pool, revision: m.revisions[pool], image: claim.Status.ImageID,
		poolHash: a[karpv1.NodePoolHashAnnotationKey], poolVersion: a[karpv1.NodePoolHashVersionAnnotationKey],
		classHash: a[k.HashKey], classVersion: a[k.HashVersionKey]}
}

func (m *memory) get(claim string) (compared, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.claims[claim]
	return c, ok
}

func (m *memory) put(claim string, c compared) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(m.claims[claim], -1)
	m.claims[claim] = c
	m.count(c, 1)
}

// turn returns the earliest time at which one more condition may be changed: each call gets a time later than the one before by pace.
func (m *memory) turn(now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next.Before(now) {
		m.next = now
	}
	at := m.next
	m.next = at.Add(pace)
	return at
}

func (m *memory) forget(claim string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(m.claims[claim], -1)
	delete(m.claims, claim)
}

// count adds n to the number of claims that have drifted in c's pool for c's reason. The caller holds mu.
func (m *memory) count(c compared, n int) {
	if c.reason == "" {
		return
	}
	s := series{c.key.pool, c.reason}
	m.drifted[s] += n
	driftedNodes.WithLabelValues(s.pool, string(s.reason)).Set(float64(m.drifted[s]))
	if m.drifted[s] == 0 {
		delete(m.drifted, s)
	}
}

// observe remembers the sources of all pools, and returns the pools whose source has changed.
func (m *memory) observe(now map[string]source) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := map[string]bool{}
	for pool, s := range now {
		if before, ok := m.pools[pool]; !ok || before != s {
			m.revision++
			m.revisions[pool] = m.revision
			changed[pool] = true
		}
	}
	for pool := range m.pools {
		if _, ok := now[pool]; !ok {
			delete(m.revisions, pool)
		}
	}
	m.pools = now
	return changed
}
