package spending

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// Restrict removes from a view what open breakers stop: offerings of images that fail become unavailable, and classes whose workloads fail
// in a pool are forbidden there. lift holds the breakers that are being probed, which stop nothing. It returns what is forbidden, and
// refusals for the pods that have to wait while others of their class need not.
func (g *Guard) Restrict(v *capacity.View, pod func(types.UID) *corev1.Pod, lift []guard.Key) (forbidden []capacity.Forbidden, wait []capacity.Refusal) {
	if g == nil {
		return nil, nil
	}
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.state.anyOpen() {
		return nil, nil
	}
	for i, p := range v.Pools {
		v.Pools[i] = g.state.withoutHeld(p, lift)
	}
	held := make([]map[string][]*guard.Breaker, len(v.Demand)) // by pool: one breaker per pod, in the order of the pods
	of, all := map[capacity.ClassKey]int{}, map[placeOf]int{}  // number of demands of a class, and of those where breakers stop every pod in a pool
	for i := range v.Demand {
		d := &v.Demand[i]
		held[i] = heldOf(g, d, v.Pools, pod, lift, now)
		of[d.Class.Key]++
		for pool, breakers := range held[i] {
			if !slices.Contains(breakers, nil) {
				all[placeOf{d.Class.Key, pool}]++
			}
		}
		if len(held[i]) > 0 {
			clear(g.probing.idle)
		}
	}
	for i := range v.Demand {
		d := &v.Demand[i]
		var out []int // pods that a breaker stops somewhere where it doesn't stop others of their class
		for _, pool := range slices.Sorted(maps.Keys(held[i])) {
			breakers := held[i][pool]
			if !slices.Contains(breakers, nil) && (all[placeOf{d.Class.Key, pool}] == of[d.Class.Key] || len(d.Pods) == 0) {
				forbidden = append(forbidden, capacity.Forbidden{Class: d.Class.Key, Pool: pool, Reason: breakers[0].Text(), Paused: true})
				continue
			}
			for j, b := range breakers {
				if b != nil && !slices.Contains(out, j) {
					out = append(out, j)
				}
			}
		}
		if len(out) > 0 {
			slices.Sort(out)
			wait = append(wait, without(d, out, held[i]))
		}
	}
	v.Demand = slices.DeleteFunc(v.Demand, func(d capacity.Demand) bool { return len(d.Pods) == 0 && d.Owner == "" })
	return forbidden, wait
}

// placeOf is a class of pods in a pool.
type placeOf struct {
	class capacity.ClassKey
	pool  string
}

// heldOf returns the breakers that stop pods of a demand, by pool and in the order of the pods; nil for those that none stops.
func heldOf(g *Guard, d *capacity.Demand, pools []*capacity.Pool, pod func(types.UID) *corev1.Pod, lift []guard.Key, now time.Time) map[string][]*guard.Breaker {
	held := map[string][]*guard.Breaker{}
	byWorkload := map[guard.Workload]map[string]*guard.Breaker{}
	pods := max(len(d.Pods), 1)
	for j := range pods {
		p := d.Class.Pod
		if len(d.Pods) > 0 {
			if live := pod(d.Pods[j].UID); live != nil {
				p = live
			}
		}
		w := g.WorkloadOf(p)
		if byWorkload[w] == nil {
			byWorkload[w] = g.state.heldIn(pools, w, lift, now)
		}
		for pool, b := range byWorkload[w] {
			if held[pool] == nil {
				held[pool] = make([]*guard.Breaker, pods)
			}
			held[pool][j] = b
		}
	}
	return held
}

// without removes pods from a demand and refuses them.
func without(d *capacity.Demand, out []int, held map[string][]*guard.Breaker) capacity.Refusal {
	r := capacity.Refusal{Class: d.Class, Retryable: true}
	var kept []capacity.PodRef
	for j, ref := range d.Pods {
		if slices.Contains(out, j) {
			r.Pods = append(r.Pods, ref)
		} else {
			kept = append(kept, ref)
		}
	}
	d.Pods = kept
	for _, pool := range slices.Sorted(maps.Keys(held)) {
		if b := held[pool][out[0]]; b != nil {
			r.Reasons = append(r.Reasons, capacity.PoolReason{Pool: pool, Reason: b.Text()})
		}
	}
	for _, reason := range r.Reasons {
		r.Message = strings.TrimPrefix(r.Message+"; "+reason.Pool+": "+reason.Reason, "; ")
	}
	return r
}

// heldIn returns the breakers that stop a workload, by pool.
func (s *state) heldIn(pools []*capacity.Pool, w guard.Workload, lift []guard.Key, now time.Time) map[string]*guard.Breaker {
	var out map[string]*guard.Breaker
	for _, p := range pools {
		b := s.breakers.HoldsPods(p.Name, w, now)
		if b == nil || slices.Contains(lift, b.Key) {
			continue
		}
		if out == nil {
			out = map[string]*guard.Breaker{}
		}
		out[p.Name] = b
	}
	return out
}

// withoutHeld returns the pool with those offerings unavailable that a breaker of machine faults stops.
func (s *state) withoutHeld(p *capacity.Pool, lift []guard.Key) *capacity.Pool {
	var out *capacity.Pool
	for i, t := range p.Types {
		var own *capacity.InstanceType
		for j := range t.Offers {
			b := s.breakers.HoldsMachine(p.NodeClass, t.Image, t.Offers[j].Zone)
			if b == nil || slices.Contains(lift, b.Key) {
				continue
			}
			if out == nil {
				cp := *p
				out = &cp
				out.Types = slices.Clone(p.Types)
			}
			out.Paused = cmp.Or(out.Paused, b.Text())
			if own == nil {
				cp := *t
				own = &cp
				own.Offers = slices.Clone(t.Offers)
				out.Types[i] = own
			}
			own.Offers[j].Available = false
		}
	}
	if out == nil {
		return p
	}
	return out
}
