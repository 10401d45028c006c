package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// withSpecial adds types that are cheaper than all others, so that only being special keeps them out of a plan: bare metal in one size,
// and instances with a GPU in two.
func withSpecial(v *capacity.View) *capacity.View {
	for _, p := range v.Pools {
		p.Types = slices.Clone(p.Types)
		for _, cpu := range []int64{4, 8} {
			g := testType("g."+string('0'+rune(cpu)), "amd64", cpu, 4*cpu, 0.001*float64(cpu))
			g.Capacity["nvidia.com/gpu"], g.Allocatable["nvidia.com/gpu"], g.Special = 1, 1, true
			p.Types = append(p.Types, g)
		}
		metal := testType("z.metal", "amd64", 96, 384, 0.01)
		metal.Special = true
		p.Types = append(p.Types, metal)
	}
	return v
}

// without makes types of the families unavailable in the zones; no zones: in all.
func without(v *capacity.View, families string, zones ...string) *capacity.View {
	for _, p := range v.Pools {
		for _, typ := range p.Types {
			for i := range typ.Offers {
				if strings.Contains(families, typ.Labels["karpenter.k8s.aws/instance-family"]) && (len(zones) == 0 || slices.Contains(zones, typ.Offers[i].Zone)) {
					typ.Offers[i].Available = false
				}
			}
		}
	}
	return v
}

func families(v *capacity.View, min int) *capacity.View {
	r, _ := capacity.NewRequirement("karpenter.k8s.aws/instance-family", capacity.Exists)
	r.MinValues = min
	v.Pools[0].Requirements = v.Pools[0].Requirements.And(r)
	return v
}

func gpuPod(app string, change ...func(*corev1.Pod)) *corev1.Pod {
	return asking(app, "cpu=1 nvidia.com/gpu=1", change...)
}

func TestSpecialHardwareIsForPodsThatNothingElseHolds(t *testing.T) {
	runPlans(t, []planCase{
		{name: "pods that anything holds", view: func(t *testing.T) *capacity.View { return withSpecial(viewOf(t, 20, asking("web", "cpu=900m"))) }, want: `
			default on-demand c.16 : map[web:17]
			default on-demand c.2 : map[web:2]
			default on-demand c.2 : map[web:1]
			`},
		{name: "a pod that asks for a GPU, and one that doesn't", view: func(t *testing.T) *capacity.View {
			v := withSpecial(viewOf(t, 1, gpuPod("model")))
			v.Demand = append(v.Demand, demandOf(t, 1, asking("web", "cpu=1")))
			return v
		}, want: `
			default on-demand g.4 : map[model:1]
			default on-demand c.2 : map[web:1]
			`},
		{name: "a pod that asks for a type by name", view: func(t *testing.T) *capacity.View {
			return withSpecial(viewOf(t, 1, asking("web", "cpu=1", on(corev1.LabelInstanceTypeStable, "z.metal", "g.8"))))
		}, want: `
			default on-demand g.8 : map[web:1]
			`},
		{name: "a pod that prefers them", view: func(t *testing.T) *capacity.View {
			return withSpecial(viewOf(t, 1, asking("web", "cpu=1", preferring("karpenter.k8s.aws/instance-family", "g"))))
		}, want: `
			default on-demand g.4 : map[web:1]
			`},
		{name: "a pod that is too large for anything else", view: func(t *testing.T) *capacity.View { return withSpecial(viewOf(t, 1, asking("web", "cpu=40"))) }, want: `
			default on-demand z.metal : map[web:1]
			`},
		{name: "nothing else is to be had", view: func(t *testing.T) *capacity.View {
			return without(withSpecial(viewOf(t, 1, asking("web", "cpu=1"))), "cmr")
		}, want: `
			default on-demand g.4 : map[web:1]
			`},
		{name: "a zone in which there is nothing else", view: func(t *testing.T) *capacity.View {
			return without(withSpecial(viewOf(t, 1, asking("web", "cpu=1", on(capacity.LabelZone, "c")))), "cmr", "c")
		}, want: `
			default on-demand g.4 c: map[web:1]
			`},
		{name: "a zone in which there is nothing else, and that a spread can't do without", view: func(t *testing.T) *capacity.View {
			full := testNode("full", "c", 0, 0)
			return without(withSpecial(viewOf(t, 3, asking("web", "cpu=1500m", withSpread(capacity.LabelZone)), full)), "cmr", "c")
		}, want: `
			default on-demand c.2 a: map[web:1]
			default on-demand c.2 b: map[web:1]
			default on-demand g.4 c: map[web:1]
			`},
		{name: "a pool that has nothing else", view: func(t *testing.T) *capacity.View {
			v := withSpecial(viewOf(t, 1, asking("web", "cpu=1")))
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(capacity.ValueIn("karpenter.k8s.aws/instance-family", "g"))
			return v
		}, want: `
			default on-demand g.4 : map[web:1]
			`},
		{name: "pods that must share a node with one that needs a GPU", view: func(t *testing.T) *capacity.View {
			v := withSpecial(viewOf(t, 1, gpuPod("model")))
			v.Demand = append(v.Demand, demandOf(t, 1, asking("web", "cpu=5", near("model", capacity.LabelHostname))))
			return v
		}, want: `
			default on-demand g.8 : map[model:1 web:1]
			`},
		{name: "pods that must share a node with each other", view: func(t *testing.T) *capacity.View {
			return withSpecial(viewOf(t, 3, asking("web", "cpu=3", near("web", capacity.LabelHostname))))
		}, want: `
			default on-demand c.16 : map[web:3]
			`},
		{name: "what is reserved is paid for", view: func(t *testing.T) *capacity.View {
			v := withSpecial(viewOf(t, 1, asking("web", "cpu=1")))
			v.Pools[0].Requirements = capacity.Requirements{}
			metal := v.Pools[0].Types[len(v.Pools[0].Types)-1]
			metal.Offers = append(metal.Offers, capacity.Offer{Zone: "b", CapacityType: capacity.CapacityTypeReserved, Price: 1e-7, Available: true, ReservationID: "cr-1", Remaining: 1})
			return v
		}, want: `
			default reserved z.metal b: map[web:1]
			`},
	})
}

// A node's alternative offerings are chosen with the same care as the one that it is planned as.
func TestOffersOfANode(t *testing.T) {
	spotAndOnDemand := func(v *capacity.View) *capacity.View {
		v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"))
		return v
	}
	dear := func(v *capacity.View) *capacity.View { // spot of c is dearer than r on demand
		for _, typ := range v.Pools[0].Types {
			for i := range typ.Offers {
				if o := &typ.Offers[i]; o.CapacityType == "spot" && strings.HasPrefix(typ.Name, "c.") {
					o.Price *= 10
				}
			}
		}
		return v
	}
	for _, tc := range []struct {
		name string
		view *capacity.View
		want string
	}{
		{"nothing special among them", withSpecial(viewOf(t, 1, asking("web", "cpu=12"))), "c.16 m.16 r.16"},
		{"minValues that others meet", families(withSpecial(viewOf(t, 1, asking("web", "cpu=12"))), 3), "c.16 m.16 r.16"},
		{"minValues that need it", families(withSpecial(viewOf(t, 1, asking("web", "cpu=12"))), 4), "z.metal c.16 m.16 r.16"},
		{"special hardware where it is needed", withSpecial(viewOf(t, 1, gpuPod("model"))), "g.4 g.8"},
		{"no spot dearer than the cheapest on demand", spotAndOnDemand(viewOf(t, 1, asking("web", "cpu=1"))), "c.2 m.2 r.2 c.4 m.4"},
		{"the same, with prices that differ more", dear(spotAndOnDemand(viewOf(t, 1, asking("web", "cpu=12")))), "m.16 r.16"},
		{"pods that must be on spot", dear(viewOfSpot(t)), "m.16 r.16 c.16"},
		{"a pool of spot", dear(func() *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=12"))
			v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"), capacity.ValueIn(capacity.LabelCapacityType, "spot"))
			return v
		}()), "m.16 r.16 c.16"},
		{"minValues that need dear spot", dear(families(spotAndOnDemand(viewOf(t, 1, asking("web", "cpu=12"))), 3)), "m.16 r.16 c.16"},
		{"no type on demand", spotAndOnDemand(withoutOnDemand(dear(viewOf(t, 1, asking("web", "cpu=12"))))), "m.16 r.16 c.16"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Decide(tc.view, capacity.Options{})
			if err := check(tc.view, p, capacity.Options{}); err != nil || len(p.Nodes) != 1 {
				t.Fatalf("%v, plan:\n%s", err, summary(p))
			}
			var got []string
			for _, o := range p.Nodes[0].Offers {
				if !slices.Contains(got, o.Type.Name) {
					got = append(got, o.Type.Name)
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("types (-want +got):\n%s", diff)
			}
		})
	}
}

func viewOfSpot(t *testing.T) *capacity.View {
	v := viewOf(t, 1, asking("web", "cpu=12", on(capacity.LabelCapacityType, "spot")))
	v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"))
	return v
}

func withoutOnDemand(v *capacity.View) *capacity.View {
	for _, typ := range v.Pools[0].Types {
		typ.Offers = slices.DeleteFunc(typ.Offers, func(o capacity.Offer) bool { return o.CapacityType == "on-demand" })
	}
	return v
}
