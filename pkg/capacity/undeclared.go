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
	// undeclaredNodes is how many fresh nodes of a pool have to get the same taint before it is taken for one that all of them get.
	undeclaredNodes = 2
	// undeclaredMemory is how long that is believed after the last node that got it.
	undeclaredMemory = 24 * time.Hour
)

// UndeclaredTaints are the NoExecute taints that others put on the fresh nodes of pools which don't declare them. Pods that are
// bound before such a taint comes are evicted by it at once, their successors have another node bought, and so on: what two nodes have
// shown is treated as the pool's startup taint. The zero value knows none. Not safe for concurrent use.
type UndeclaredTaints struct {
	pools map[string][]*UndeclaredTaint
}

// UndeclaredTaint is one of them: the taint, on which fresh nodes it was seen, and when the last time.
type UndeclaredTaint struct {
	Taint corev1.Taint `json:"taint"`
	Seen  time.Time    `json:"seen"`
	// claims have had it; undeclaredNodes of them are enough to know.
	claims []string
	// learned, and recorded somewhere: no claims are known of it.
	learned bool
}

// OthersTaint says that a taint of a fresh node has neither been put there by Kubernetes nor by this program: who put it there was not
// expected.
func OthersTaint(t *corev1.Taint) bool {
	domain, _, _ := strings.Cut(t.Key, "/")
	switch domain {
	case "node.kubernetes.io", "node.cloudprovider.kubernetes.io", "karpenter.sh", objects.Domain:
		return false
	}
	return t.Effect == corev1.TaintEffectNoExecute
}

// See takes down that a fresh node of the pool has got the taint, and says whether that has taught anything.
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

// Restore takes what was known before a restart.
func (u *UndeclaredTaints) Restore(pool string, known []UndeclaredTaint) {
	for _, k := range known {
		one := u.of(pool, k.Taint)
		one.learned = true
		if k.Seen.After(one.Seen) {
			one.Seen = k.Seen
		}
	}
}

// Declared forgets what the pool declares now.
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

// Learned are the taints that a fresh node of the pool is expected to get, in a fixed order. One that no node has had for a day is none.
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
