package provisioning

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Plans makes verified plans for pods that don't exist yet. It belongs to the planner's goroutine.
type Plans struct {
	offers   *offers
	planning *planning
}

// View takes a view of the cluster without demand.
func (p *Plans) View(ctx context.Context) (*View, error) {
	v, err := p.planning.viewer.view(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("taking a view of the cluster: %w", err)
	}
	v.Demand = nil
	return v, nil
}

// Fit plans demand on the nodes of a view, and buys nothing.
func (p *Plans) Fit(ctx context.Context, v *View, demand []capacity.Demand) (*capacity.Plan, error) {
	own := v.Scene
	own.Pools, own.Demand = nil, demand
	d := Decider{Planner: p.offers.planner, World: p.offers.world, Nodes: p.offers.nodes, Pod: noPod}
	return d.Decide(ctx, &own, capacity.Options{IgnorePreferences: p.offers.options.IgnorePreferences})
}

// Buy plans demand on the nodes of a view and on new ones, as for pods.
func (p *Plans) Buy(ctx context.Context, v *View, demand []capacity.Demand) (*capacity.Plan, error) {
	v.Demand = demand
	return p.planning.verified(ctx, v, noPod, nil, nil)
}

func noPod(types.UID) *corev1.Pod { return nil }
