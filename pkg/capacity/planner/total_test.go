package planner

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// sharing makes the pools of a view share a limit.
func sharing(v *capacity.View, limits, used capacity.Resources) *capacity.View {
	total := &capacity.Total{Limits: limits, Used: used}
	for _, p := range v.Pools {
		p.Total = total
	}
	return v
}

func TestPlanWithinTheLimitOfAllPools(t *testing.T) {
	two := func(v *capacity.View) *capacity.View {
		v.Pools = []*capacity.Pool{testPool("a"), testPool("b")}
		v.Pools[0].Taints = []corev1.Taint{{Key: "for", Value: "db", Effect: corev1.TaintEffectNoSchedule}}
		return v
	}
	tolerating := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "for", Operator: corev1.TolerationOpExists}}
		p.Spec.NodeSelector = map[string]string{"karpenter.sh/nodepool": "a"}
	}
	runPlans(t, []planCase{
		{name: "one limit for the pods of two pools", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("db", "cpu=1500m", tolerating))
			v.Demand = append(v.Demand, demandOf(t, 2, asking("web", "cpu=1500m")))
			return sharing(two(v), capacity.Resources{"cpu": 10_000}, capacity.Resources{"cpu": 4000})
		}, want: `
			a on-demand c.2 : map[db:1]
			a on-demand c.2 : map[db:1]
			b on-demand c.2 : map[web:1]
			refused 1 web: a: taint for=db:NoSchedule is not tolerated; b: the nodes of all pools, planned ones included, use cpu 10 of 10 (limits of ProvisionArgs)
			`},
		{name: "a limit of nodes", view: func(t *testing.T) *capacity.View {
			return sharing(viewOf(t, 3, asking("web", "cpu=100m", away("web", capacity.LabelHostname))), capacity.Resources{capacity.ResourceNodes: 9}, capacity.Resources{capacity.ResourceNodes: 7})
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			refused 1 web: default: the nodes of all pools, planned ones included, use nodes 9 of 9 (limits of ProvisionArgs)
			`},
		{name: "a pool's own limit holds, too, and is the reason", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 3, asking("web", "cpu=100m", away("web", capacity.LabelHostname)))
			v.Pools[0].Limits = capacity.Resources{capacity.ResourceNodes: 1}
			return sharing(v, capacity.Resources{capacity.ResourceNodes: 2}, capacity.Resources{})
		}, want: `
			default on-demand c.2 : map[web:1]
			refused 2 web: default: limit of nodes 1 reached: 0 left
			`},
		{name: "it is used up, and a node that is there has capacity", view: func(t *testing.T) *capacity.View {
			return sharing(viewOf(t, 2, asking("web", "cpu=1500m"), testNode("n1", "a", 2, 8)), capacity.Resources{"cpu": 2000, "memory": 1 << 40}, capacity.Resources{"cpu": 2000})
		}, want: `
			n1: map[web:1]
			refused 1 web: default: the nodes of all pools, planned ones included, use cpu 2 of 2 (limits of ProvisionArgs)
			`},
		{name: "it was lowered below what nodes use", view: func(t *testing.T) *capacity.View {
			return sharing(viewOf(t, 1, asking("web", "cpu=1")), capacity.Resources{"cpu": 4000}, capacity.Resources{"cpu": 9000})
		}, want: `
			refused 1 web: default: the nodes of all pools, planned ones included, use cpu 9 of 4 (limits of ProvisionArgs)
			`},
		{name: "a limit of what the types don't have keeps none of them away", view: func(t *testing.T) *capacity.View {
			v := sharing(viewOf(t, 3, asking("web", "cpu=1500m", away("web", capacity.LabelHostname))), capacity.Resources{"nvidia.com/gpu": 1, capacity.ResourceNodes: 2}, capacity.Resources{"nvidia.com/gpu": 3})
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			refused 1 web: default: the nodes of all pools, planned ones included, use nodes 2 of 2 (limits of ProvisionArgs)
			`},
		{name: "what is left goes to the highest priority", view: func(t *testing.T) *capacity.View {
			high := int32(100)
			v := viewOf(t, 1, asking("high", "cpu=1500m", func(p *corev1.Pod) { p.Spec.Priority = &high }))
			v.Demand = append(v.Demand, demandOf(t, 2, asking("low", "cpu=1800m")))
			v.Pools[0].Types = v.Pools[0].Types[:1]
			return sharing(v, capacity.Resources{"cpu": 4000}, capacity.Resources{})
		}, want: `
			default on-demand c.2 : map[high:1]
			default on-demand c.2 : map[low:1]
			refused 1 low: default: the nodes of all pools, planned ones included, use cpu 4 of 4 (limits of ProvisionArgs)
			`},
	})
}

// A node may become any of its instance types: if the largest would exceed the limit, only types that don't are left.
func TestTheLimitOfAllPoolsHoldsForTheLargestType(t *testing.T) {
	v := viewOf(t, 1, asking("web", "cpu=1"))
	free := Decide(v, capacity.Options{})
	if n := free.Nodes[0]; n.Largest["cpu"] <= 2000 {
		t.Fatalf("without a limit it is at most %v", n.Largest)
	}
	p := Decide(sharing(v, capacity.Resources{"cpu": 3000}, capacity.Resources{}), capacity.Options{})
	if len(p.Nodes) != 1 || p.Nodes[0].Largest["cpu"] != 2000 {
		t.Fatalf("%s", summary(p))
	}
}

// worldWithin returns a random world whose pools share a limit. Nothing but the limit depends on the draws for it.
func worldWithin(t testing.TB, seed uint64, slack float64) *capacity.View {
	v := dice{rand.New(rand.NewPCG(seed, 1))}.world(t)
	d := dice{rand.New(rand.NewPCG(seed, 3))}
	limits, used := capacity.Resources{}, capacity.Resources{}
	most := map[corev1.ResourceName]float64{"cpu": 80_000, "memory": 200 << 30, capacity.ResourceNodes: 8, "nvidia.com/gpu": 2}
	for _, name := range slices.Sorted(maps.Keys(most)) {
		if d.one(2) {
			limits[name] = int64(slack * (1 + d.Float64()) * most[name] / 2)
			used[name] = int64(d.Float64() * 0.3 * float64(limits[name]))
		}
		if d.one(12) && slack <= 1 {
			used[name] = 2 * limits[name] // lowered
		}
	}
	return sharing(v, limits, used)
}

// Plans never exceed the limit of all pools, whatever else constrains them, and a limit that they would not reach changes nothing of them: neither
// nodes nor reasons.
func TestRandomWorldsWithinTheLimitOfAllPools(t *testing.T) {
	reached, kept := 0, 0
	for seed := range uint64(150) {
		opts := capacity.Options{Effort: int(seed%3) * 300}
		v := worldWithin(t, seed, 1)
		free := worldWithin(t, seed, 1)
		for _, p := range free.Pools {
			p.Total = nil
		}
		without := Decide(free, opts)
		if checkTotal(v, without) == nil {
			kept++
		} else {
			reached++
		}
		planner := New()
		for range 2 { // the second time with the catalogs of the first
			p := planner.Plan(v, opts)
			if err := check(v, p, opts); err != nil {
				t.Fatalf("world %d: %v\n%s", seed, err, summary(p))
			}
			if diff := cmp.Diff(summary(without), summary(p)); checkTotal(v, without) == nil && !usedUp(v.Pools[0].Total, v.Pools) && diff != "" {
				t.Fatalf("world %d: a limit that isn't reached changes the plan (-without +with):\n%s", seed, diff)
			}
		}
		// Far away from every plan it changes nothing either.
		if diff := cmp.Diff(summary(without), summary(planner.Plan(worldWithin(t, seed, 1e6), opts))); diff != "" {
			t.Fatalf("world %d: a limit far away changes the plan (-without +with):\n%s", seed, diff)
		}
	}
	if reached < 30 || kept < 30 {
		t.Errorf("%d worlds reach the limit, %d don't: too few for a test", reached, kept)
	}
}

// A planner that had another limit, or another use of the same, plans as a new one does.
func TestPlannerForgetsTheLastLimit(t *testing.T) {
	for seed := range uint64(40) {
		planner := New()
		for _, of := range []uint64{seed, seed + 1000} {
			other := worldWithin(t, seed, 1)
			d := rand.New(rand.NewPCG(of, 4))
			sharing(other, capacity.Resources{"cpu": d.Int64N(60_000)}, capacity.Resources{"cpu": d.Int64N(20_000)})
			want := summary(Decide(other, capacity.Options{}))
			if diff := cmp.Diff(want, summary(planner.Plan(other, capacity.Options{}))); diff != "" {
				t.Fatalf("world %d (-new planner +used planner):\n%s", seed, diff)
			}
		}
	}
}
