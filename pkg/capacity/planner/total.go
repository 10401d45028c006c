package planner

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// keeps reports whether a plan keeps the limit of all pools, whichever of its offerings each node becomes.
func keeps(plan *capacity.Plan, total *capacity.Total) bool {
	for name := range total.Limits {
		left := total.Left(name)
		for _, n := range plan.Nodes {
			amount := n.Largest[name]
			if name == capacity.ResourceNodes {
				amount = 1
			}
			if amount > left {
				return false
			}
			left -= amount
		}
	}
	return true
}

// usedUp reports whether the limit of all pools allows no further node of any instance type. Then no plan without it is worth making.
func usedUp(total *capacity.Total, pools []*capacity.Pool) bool {
	for name := range total.Limits {
		least := int64(1)
		if name != capacity.ResourceNodes {
			least = leastOf(name, pools)
		}
		if least > total.Left(name) {
			return true
		}
	}
	return false
}

// leastOf returns the least that an instance type of the pools has of a resource.
func leastOf(name corev1.ResourceName, pools []*capacity.Pool) int64 {
	least := int64(math.MaxInt64)
	for _, p := range pools {
		for _, t := range p.Types {
			if least = min(least, t.Capacity[name]); least <= 0 {
				return 0
			}
		}
	}
	return least
}

// totalReason names the setting of a budget of all pools, with its resource, limit and use; "" if it is another budget.
func (r *run) totalReason(budget int) string {
	for name, b := range r.catalog.Budgets.OfAll {
		if b == budget {
			total := r.catalog.Budgets.Total
			planned := capacity.SatAdd(r.allBudgets[b], -r.budgets[b])
			used, limit := capacity.Resources{name: capacity.SatAdd(total.Used[name], planned)}.List()[name], capacity.Resources{name: total.Limits[name]}.List()[name]
			return fmt.Sprintf("the nodes of all pools, planned ones included, use %s %s of %s (limits of ProvisionArgs)", name, used.String(), limit.String())
		}
	}
	return ""
}
