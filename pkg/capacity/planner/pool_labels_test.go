package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
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
			refused 1 web: default: its requirements exclude all 16 instance types
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
