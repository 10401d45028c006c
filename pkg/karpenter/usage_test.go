package karpenter

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// TestUsageIsTheSumOfItsClaims compares the incremental sums with full sums, over random sequences of changes.
func TestUsageIsTheSumOfItsClaims(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		u := NewUsage(capacity.Resources{"cpu": 1, capacity.ResourceNodes: 1})
		now := map[string]*capacity.Claim{}
		amount := func() capacity.Resources {
			out := capacity.Resources{}
			for _, name := range []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu"} {
				if r.IntN(3) > 0 {
					out[name] = r.Int64() >> r.IntN(64) // also more than any instance has
				}
			}
			return out
		}
		for range 300 {
			name := fmt.Sprint("claim-", r.IntN(12))
			if r.IntN(3) == 0 {
				delete(now, name)
				u.Drop(name)
				continue
			}
			c := &capacity.Claim{Name: name, Pool: fmt.Sprint("pool-", r.IntN(3)), Largest: amount(), Requests: amount()}
			if r.IntN(2) == 0 {
				c.Launched, c.Capacity = true, amount()
			}
			now[name] = c
			u.Set(c, r.IntN(2) == 0)
		}
		takes, has, all := map[string]capacity.Resources{}, map[string]capacity.Resources{}, capacity.Resources{"cpu": 0, capacity.ResourceNodes: 0}
		for _, c := range now {
			if takes[c.Pool] == nil {
				takes[c.Pool], has[c.Pool] = capacity.Resources{}, capacity.Resources{}
			}
			takes[c.Pool].Add(c.Takes(), 1)
			all["cpu"] += c.Takes()["cpu"]
			all[capacity.ResourceNodes]++
			if c.Launched {
				has[c.Pool].Add(c.Takes(), 1)
			}
		}
		gotTakes, gotHas := map[string]capacity.Resources{}, map[string]capacity.Resources{}
		for pool := range u.pools {
			gotTakes[pool], gotHas[pool] = u.Takes(pool), u.Has(pool)
		}
		if diff := cmp.Diff(all, u.Total().Used); diff != "" {
			t.Fatalf("seed %d: use of all pools (-added up +kept up):\n%s", seed, diff)
		}
		same := cmpopts.IgnoreMapEntries(func(_ corev1.ResourceName, v int64) bool { return v == 0 })
		if diff := cmp.Diff([]any{takes, has}, []any{gotTakes, gotHas}, same); diff != "" {
			t.Fatalf("seed %d: use (-added up +kept up):\n%s", seed, diff)
		}
	}
}
