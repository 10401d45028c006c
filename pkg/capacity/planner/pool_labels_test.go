package planner

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/test/pods"
)

func TestAPoolsLabelsAndRequirements(t *testing.T) {
	world := func(change func(*capacity.Pool), pods ...func(*corev1.Pod)) func(*testing.T) *capacity.View {
		return func(t *testing.T) *capacity.View {
			v := withOfferLabels(viewOf(t, 1, asking("web", "cpu=1", pods...)))
			p := v.Pools[0]
			change(p)
			for key, value := range p.Labels {
				p.Requirements = p.Requirements.Intersect(capacity.Requirements{key: capacity.ValueIn(key, value)})
			}
			return v
		}
	}
	runPlans(t, []planCase{
		{"its labels narrow the types and the offers as its requirements do", world(func(p *capacity.Pool) {
			p.Labels[corev1.LabelInstanceTypeStable], p.Labels["topology.k8s.aws/zone-id"] = "m.4", "id-b"
		}), capacity.Options{}, `
			default on-demand m.4 b: map[web:1]
		`},
		{"a label that no type has leaves nothing", world(func(p *capacity.Pool) { p.Labels[corev1.LabelArchStable] = "riscv" }), capacity.Options{}, `
			refused 1 web: default: its requirements exclude all 16 instance types that its node class's images and zones allow
		`},
		{"a kind of reservation that nobody has is not made up", world(func(p *capacity.Pool) {
			p.Requirements = p.Requirements.And(capacity.ValueIn("karpenter.k8s.aws/capacity-reservation-type", "capacity-block"))
		}), capacity.Options{}, `
			refused 1 web: default: none of 12 instance types is available in the zones and capacity types it allows
		`},
		{"pods are spread over zones by their ids", func(t *testing.T) *capacity.View {
			return withOfferLabels(viewOf(t, 3, asking("web", "cpu=1", withSpread("topology.k8s.aws/zone-id"))))
		}, capacity.Options{}, `
			default on-demand c.2 a: map[web:1]
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
		`},
	})
}

// A pool's nodes get each custom label that a pod asks for and that the pool's requirements allow, as Karpenter's do.
func TestLabelsThatPodsAskFor(t *testing.T) {
	requires := func(key, operator string, values ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			affinityOf(p).NodeAffinity = pods.NodeAffinity(pods.Requires(key, operator, values...)).NodeAffinity
		}
	}
	selects := func(labels map[string]string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = labels }
	}
	numbered := func(prefix string, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%s-%02d", prefix, i))
		}
		return out
	}
	and := func(v *capacity.View, key string, op capacity.Operator, values ...string) *capacity.View {
		r, err := capacity.NewRequirement(key, op, values...)
		if err != nil {
			t.Fatal(err)
		}
		v.Pools[0].Requirements = v.Pools[0].Requirements.And(r)
		return v
	}
	const bought = `
		default on-demand c.2 : map[web:1]
		`
	one := func(key, op string, values ...string) func(t *testing.T) *capacity.View {
		return func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", requires(key, op, values...)))
		}
	}
	runPlans(t, []planCase{
		{name: "the last of many values", view: func(t *testing.T) *capacity.View {
			return and(one("tenant", "In", "t-79")(t), "tenant", capacity.In, numbered("t", 80)...)
		}, want: bought},
		{name: "two keys, whose values have more combinations than are listed", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=100m", selects(map[string]string{"team": "team-19", "env": "env-3"})))
			for i := range 20 {
				labels := map[string]string{"team": numbered("team", 20)[i], "env": fmt.Sprintf("env-%d", i%4)}
				v.Demand = append(v.Demand, demandOf(t, 1, asking(fmt.Sprintf("other-%02d", i), "cpu=100m", selects(labels))))
			}
			return and(and(v, "team", capacity.In, numbered("team", 20)...), "env", capacity.In, "env-0", "env-1", "env-2", "env-3")
		}, want: `
			default on-demand c.2 : map[other-19:1 web:1]
			` + strings.Join(func() (lines []string) {
			for n := range 19 { // by environment, as they are sorted
				i := n%5*4 + n/5
				lines = append(lines, fmt.Sprintf("default on-demand c.2 : map[other-%02d:1]", i))
			}
			return lines
		}(), "\n") + "\n"},
		{name: "no label, which the pool requires, beside more combinations than are listed", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=100m", requires("team", "DoesNotExist")))
			for i := range 20 {
				labels := map[string]string{"team": numbered("team", 20)[i], "env": fmt.Sprintf("env-%d", i%4)}
				v.Demand = append(v.Demand, demandOf(t, 0, asking(fmt.Sprintf("other-%02d", i), "cpu=100m", selects(labels))))
			}
			return and(and(v, "team", capacity.Exists), "env", capacity.In, "env-0", "env-1", "env-2", "env-3")
		}, want: `
			refused 1 web: default: none of 12 instance types has team does not exist
			`},
		{name: "a number above one", view: func(t *testing.T) *capacity.View { return and(one("gen", "Gt", "3")(t), "gen", capacity.Exists) }, want: bought},
		{name: "a number above the pool's", view: func(t *testing.T) *capacity.View { return and(one("gen", "Gt", "5")(t), "gen", capacity.Gt, "2") }, want: bought},
		{name: "any value but the least", view: func(t *testing.T) *capacity.View { return and(one("gen", "NotIn", "0")(t), "gen", capacity.Exists) }, want: bought},
		{name: "any of the listed values but the first", view: func(t *testing.T) *capacity.View {
			return and(one("gen", "NotIn", "a")(t), "gen", capacity.In, "a", "b", "c")
		}, want: bought},
		{name: "a value that the pool doesn't exclude", view: func(t *testing.T) *capacity.View {
			return and(one("team", "In", "y")(t), "team", capacity.NotIn, "x")
		}, want: bought},
		{name: "a value that the pool excludes", view: func(t *testing.T) *capacity.View {
			return and(one("team", "In", "x")(t), "team", capacity.NotIn, "x")
		}, want: `
			refused 1 web: default: the pod asks for team in (x), which the requirement of the pool excludes: team not in (x)
			`},
		{name: "a label that the pool rules out", view: func(t *testing.T) *capacity.View {
			return and(one("team", "In", "x")(t), "team", capacity.DoesNotExist)
		}, want: `
			refused 1 web: default: the pod asks for team in (x), which the requirement of the pool excludes: team does not exist
			`},
		{name: "no value at all", view: func(t *testing.T) *capacity.View {
			return and(and(viewOf(t, 1, asking("web", "cpu=1")), "gen", capacity.In, "a"), "gen", capacity.In, "b")
		}, want: `
			refused 1 web: default: none of 12 instance types is available in the zones and capacity types it allows
			`},
	})
}
