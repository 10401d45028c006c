package capacity

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// undeclaredNodes is how many new nodes of a pool have to get the same taint before all of its new nodes are expected to get it.
	undeclaredNodes = 2
	// undeclaredMemory is for how long new nodes are expected to get a taint after the last one that got it.
	undeclaredMemory = 24 * time.Hour
)

// UndeclaredTaints are the NoExecute taints that other programs put on new nodes although the nodes' pools don't declare them. Such a
// taint immediately evicts pods that were bound before it appeared, another node is bought for their replacements, and so on. A taint
// that two nodes got is therefore treated as a startup taint of the pool. The zero value is empty. Not safe for concurrent use.
type UndeclaredTaints struct {
	pools map[string][]*UndeclaredTaint
}

// UndeclaredTaint is a taint that other programs put on new nodes of a pool, with the time at which a new node was last seen with it.
type UndeclaredTaint struct {
	Taint corev1.Taint `json:"taint"`
	Seen  time.Time    `json:"seen"`
	// claims are the names of the NodeClaims whose nodes had the taint; undeclaredNodes of them are enough.
	claims []string
	// learned: all new nodes of the pool are expected to get it, because enough nodes had it or it was restored after a restart.
	learned bool
}

// OthersTaint reports whether a taint of a new node is a NoExecute taint that is neither Kubernetes', Karpenter's nor Dovetail's own.
func OthersTaint(t *corev1.Taint) bool {
	domain, _, _ := strings.Cut(t.Key, "/")
	switch domain {
	case "node.kubernetes.io", "node.cloudprovider.kubernetes.io", "karpenter.sh", objects.Domain:
		return false
	}
	return t.Effect == corev1.TaintEffectNoExecute
}

// See records that a new node of the pool, that of the claim, has got the taint. It returns true if all new nodes are expected to get it from now on.
func (u *UndeclaredTaints) See(pool, claim string, t corev1.Taint, now time.Time) (news bool) {
	one := u.of(pool, t)
	one.Seen = now
	if one.learned || slices.Contains(one.claims, claim) {
		return false
	}
	one.claims = append(one.claims, claim)
	one.learned = len(one.claims) >= undeclaredNodes
	return one.learned
}

// Restore adds the taints that were known before a restart.
func (u *UndeclaredTaints) Restore(pool string, known []UndeclaredTaint) {
	for _, k := range known {
		one := u.of(pool, k.Taint)
		one.learned = true
		if k.Seen.After(one.Seen) {
			one.Seen = k.Seen
		}
	}
}

// Declared forgets the taints that the pool declares now.
func (u *UndeclaredTaints) Declared(pool string, taints ...corev1.Taint) {
	left := slices.DeleteFunc(u.pools[pool], func(one *UndeclaredTaint) bool {
		return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&one.Taint) })
	})
	if u.pools != nil {
		u.pools[pool] = left
	}
}

// Forget forgets a pool.
func (u *UndeclaredTaints) Forget(pool string) { delete(u.pools, pool) }

// Learned returns the taints that a new node of the pool is expected to get, in a fixed order. A taint that no node has got for a day is
// not among them.
func (u *UndeclaredTaints) Learned(pool string, now time.Time) []UndeclaredTaint {
	var out []UndeclaredTaint
	for _, one := range u.pools[pool] {
		if one.learned && now.Sub(one.Seen) < undeclaredMemory {
			out = append(out, UndeclaredTaint{Taint: one.Taint, Seen: one.Seen})
		}
	}
	slices.SortFunc(out, func(a, b UndeclaredTaint) int { return cmp.Compare(a.Taint.Key, b.Taint.Key) })
	return out
}

func (u *UndeclaredTaints) of(pool string, t corev1.Taint) *UndeclaredTaint {
	for _, one := range u.pools[pool] {
		if one.Taint.MatchTaint(&t) {
			return one
		}
	}
	if u.pools == nil {
		u.pools = map[string][]*UndeclaredTaint{}
	}
	one := &UndeclaredTaint{Taint: corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}}
	u.pools[pool] = append(u.pools[pool], one)
	return one
}
