package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAPoolsLabelsAndRequirements(t *testing.T) {
	world := func(change func(*Pool), pods ...func(*corev1.Pod)) func(*testing.T) *View {
		return func(t *testing.T) *View {
			v := withOfferLabels(viewOf(t, 1, asking("web", "cpu=1", pods...)))
			p := v.Pools[0]
			change(p)
			p.Requirements = p.Requirements.Intersect(LabelRequirements(p.Labels))
			return v
		}
	}
	runPlans(t, []planCase{
		{"its labels narrow the types and the offers as its requirements do", world(func(p *Pool) {
			p.Labels[labelInstanceType], p.Labels["topology.k8s.aws/zone-id"] = "m.4", "id-b"
		}), Options{}, `
			default on-demand m.4 b: map[web:1]
		`},
		{"a label that no type has leaves nothing", world(func(p *Pool) { p.Labels[corev1.LabelArchStable] = "riscv" }), Options{}, `
			refused 1 web: default: its requirements exclude all 16 instance types
		`},
		{"a kind of reservation that nobody has is not made up", world(func(p *Pool) {
			p.Requirements = p.Requirements.And(ValueIn("karpenter.k8s.aws/capacity-reservation-type", "capacity-block"))
		}), Options{}, `
			refused 1 web: default: none of 12 instance types is available in the zones and capacity types it allows
		`},
		{"pods are spread over zones by their ids", func(t *testing.T) *View {
			return withOfferLabels(viewOf(t, 3, asking("web", "cpu=1", withSpread("topology.k8s.aws/zone-id"))))
		}, Options{}, `
			default on-demand c.2 a: map[web:1]
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
		`},
	})
}
