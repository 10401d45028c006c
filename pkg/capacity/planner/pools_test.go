package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestPlanOfPools(t *testing.T) {
	pools := func(v *capacity.View, change func(a, b *capacity.Pool)) *capacity.View {
		v.Pools = []*capacity.Pool{testPool("a"), testPool("b")}
		change(v.Pools[0], v.Pools[1])
		return v
	}
	runPlans(t, []planCase{
		{name: "the heavier pool although it is dearer", view: func(t *testing.T) *capacity.View {
			return pools(viewOf(t, 1, asking("web", "cpu=1")), func(a, b *capacity.Pool) { a.Weight, a.Types = 10, testTypes()[8:12] })
		}, want: `
			a on-demand r.2 : map[web:1]
			`},
		{name: "pools of equal weight compete on price", view: func(t *testing.T) *capacity.View {
			return pools(viewOf(t, 1, asking("web", "cpu=1")), func(a, b *capacity.Pool) { a.Types = testTypes()[8:12] })
		}, want: `
			b on-demand c.2 : map[web:1]
			`},
		{name: "a limit sends the rest to the next pool", view: func(t *testing.T) *capacity.View {
			return pools(viewOf(t, 4, asking("web", "cpu=1500m")), func(a, b *capacity.Pool) {
				a.Weight, a.Limits, a.Used = 10, capacity.Resources{"cpu": 8000}, capacity.Resources{"cpu": 4000}
			})
		}, want: `
			a on-demand c.2 : map[web:1]
			a on-demand c.2 : map[web:1]
			b on-demand c.2 : map[web:1]
			b on-demand c.2 : map[web:1]
			`},
		{name: "a limit of nodes", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 3, asking("web", "cpu=100m", away("web", capacity.LabelHostname)))
			v.Pools[0].Limits = capacity.Resources{capacity.ResourceNodes: 2}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			refused 1 web: default: limit of nodes 2 reached: 0 left
			`},
		{name: "what is left of a limit goes to the highest priority", view: func(t *testing.T) *capacity.View {
			high := int32(100)
			v := viewOf(t, 1, asking("high", "cpu=1500m", func(p *corev1.Pod) { p.Spec.Priority = &high }))
			v.Demand = append(v.Demand, demandOf(t, 2, asking("low", "cpu=1800m")))
			v.Pools[0].Limits = capacity.Resources{"cpu": 4000}
			v.Pools[0].Types = v.Pools[0].Types[:1]
			return v
		}, want: `
			default on-demand c.2 : map[high:1]
			default on-demand c.2 : map[low:1]
			refused 1 low: default: limit of cpu 4 reached: 0 left
			`},
		{name: "an unready pool", view: func(t *testing.T) *capacity.View {
			return pools(viewOf(t, 1, asking("web", "cpu=1")), func(a, b *capacity.Pool) { a.Weight, a.Unready = 10, "node class x has no subnets" })
		}, want: `
			b on-demand c.2 : map[web:1]
			`},
		{name: "nothing to be had", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			for _, typ := range v.Pools[0].Types {
				for i := range typ.Offers {
					typ.Offers[i].Available = false
				}
			}
			return v
		}, want: `
			refused 1 web: default: none of 12 instance types is available in the zones and capacity types it allows
			`},
		{name: "spot where it is allowed, and nobody is dragged along", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("web", "cpu=800m"))
			v.Demand = append(v.Demand, demandOf(t, 2, asking("db", "cpu=800m", on(capacity.LabelCapacityType, "on-demand"))))
			v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"))
			return v
		}, want: `
			default on-demand c.2 : map[db:2]
			default spot c.2 : map[web:2]
			`},
		{name: "reserved capacity first, as far as it goes", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 5, asking("web", "cpu=1500m"))
			v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"))
			v.Pools[0].Types[9].Offers = append(v.Pools[0].Types[9].Offers, capacity.Offer{Zone: "b", CapacityType: capacity.CapacityTypeReserved, Price: 0.2e-7, Available: true, ReservationID: "cr-1", Remaining: 2})
			return v
		}, want: `
			default reserved r.4 b: map[web:2]
			default reserved r.4 b: map[web:2]
			default spot c.2 : map[web:1]
			`},
		{name: "of what is reserved the cheapest, too", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 3, asking("web", "cpu=1500m"))
			v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"))
			for i, x := range v.Pools[0].Types {
				if p := map[string]float64{"r.4": 0.2e-7, "c.2": 0.15e-7}[x.Name]; p > 0 {
					v.Pools[0].Types[i].Offers = append(x.Offers, capacity.Offer{Zone: "b", CapacityType: capacity.CapacityTypeReserved, Price: p, Available: true, ReservationID: "cr-" + x.Name, Remaining: 3})
				}
			}
			return v
		}, want: `
			default reserved r.4 b: map[web:2]
			default reserved c.2 b: map[web:1]
			`},
		{name: "a zone by its id", view: func(t *testing.T) *capacity.View {
			v := withOfferLabels(viewOf(t, 1, asking("web", "cpu=1")))
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(capacity.ValueIn("topology.k8s.aws/zone-id", "id-b"))
			return v
		}, want: `
			default on-demand c.2 b: map[web:1]
			`},
		{name: "a pod that asks for a zone by its id", view: func(t *testing.T) *capacity.View {
			return withOfferLabels(viewOf(t, 1, asking("web", "cpu=1", on("topology.k8s.aws/zone-id", "id-c"))))
		}, want: `
			default on-demand c.2 c: map[web:1]
			`},
		{name: "shared hardware is cheaper, and who asks for hardware of their own gets it", view: func(t *testing.T) *capacity.View {
			v := withOfferLabels(viewOf(t, 2, asking("web", "cpu=1500m")))
			v.Demand = append(v.Demand, demandOf(t, 1, asking("secret", "cpu=1500m", on("karpenter.k8s.aws/instance-tenancy", "dedicated"))))
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[secret:1] dedicated
			`},
		{name: "a label that only offers have and none has", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", on("topology.k8s.aws/zone-id", "id-c")))
		}, want: `
			refused 1 web: default: none of 12 instance types has topology.k8s.aws/zone-id in (id-c)
			`},
		{name: "minValues keeps families open", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1 memory=5Gi"))
			families, _ := capacity.NewRequirement("karpenter.k8s.aws/instance-family", capacity.Exists)
			families.MinValues = 3
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(families)
			return v
		}, want: `
			default on-demand m.2 : map[web:1]
			`},
		{name: "minValues that can't be kept", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1 memory=100Gi"))
			families, _ := capacity.NewRequirement("karpenter.k8s.aws/instance-family", capacity.Exists)
			families.MinValues = 3
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(families)
			return v
		}, want: `
			refused 1 web: default: minValues: only 1 of 3 values of karpenter.k8s.aws/instance-family are possible
			`},
		{name: "a surcharge per node makes fewer of them", view: func(t *testing.T) *capacity.View { return viewOf(t, 20, asking("web", "cpu=900m")) }, opts: capacity.Options{NodeSurcharge: 0.1}, want: `
			default on-demand c.16 : map[web:17]
			default on-demand c.4 : map[web:3]
			`},
		{name: "a family that is worth less than its price", view: func(t *testing.T) *capacity.View { return viewOf(t, 1, asking("web", "cpu=1")) }, opts: capacity.Options{PriceFactor: map[string]float64{"c": 1.5}}, want: `
			default on-demand m.2 : map[web:1]
			`},
		{name: "no pool at all", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools = nil
			return v
		}, want: `
			refused 1 web: there is no node pool
			`},
	})
}
