package view

import (
	"context"
	"fmt"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/whatif"
)

// Ending is what would happen if a node ended. Prices are $/h.
type Ending struct {
	Node string `json:"node"`
	// PerHour is what the node costs; Priced: that is known.
	PerHour float64 `json:"perHour"`
	Priced  bool    `json:"priced"`
	// InsteadPerHour is how much more would be bought.
	InsteadPerHour float64 `json:"insteadPerHour"`
	// Moved is the number of its pods that would have to run elsewhere. Lost are those that nothing would create again.
	Moved int      `json:"moved"`
	Lost  []string `json:"lost,omitempty"`
	// Refused are pods for which there would be no node, with the reason of each, beyond those for which there is none now.
	Refused []string `json:"refused,omitempty"`
	// Against is what stands against ending it, as the cluster's objects say it.
	Against []string `json:"against,omitempty"`
	// Bought are the nodes that would be bought for all pods that then wait.
	Bought []string `json:"bought,omitempty"`
}

// EndingOf plans the cluster without a node, and as it is, as 'dovetail plan --without' does: pods for which nothing is launched don't count. An error names
// what is missing.
func EndingOf(ctx context.Context, c *explain.Cluster, name string) (*Ending, error) {
	plannable := c.Plannable()
	set, gone, err := whatif.Without(plannable, []string{name})
	if err != nil {
		return nil, err
	}
	s := c.Settings
	s.Explain = ""
	now, err := offline.Plan(ctx, plannable, s)
	if err != nil {
		return nil, fmt.Errorf("planning for the cluster as it is: %w", err)
	}
	then, err := offline.Plan(ctx, set, s)
	if err != nil {
		return nil, fmt.Errorf("planning for the cluster without it: %w", err)
	}
	out := &Ending{Node: name, InsteadPerHour: then.TotalPerHour - now.TotalPerHour, Moved: len(gone.Moved)}
	out.PerHour, out.Priced = c.Price(gone.Nodes[0].Labels)
	out.Against = c.Against(gone.Nodes[0])
	for _, pod := range gone.Lost {
		out.Lost = append(out.Lost, pod.Namespace+"/"+pod.Name)
	}
	already := map[string]bool{}
	for i := range now.Refused {
		already[now.Refused[i].Namespace+"/"+now.Refused[i].Name] = true
	}
	for i := range then.Refused {
		r := &then.Refused[i]
		if pod := r.Namespace + "/" + r.Name; !already[pod] {
			out.Refused = append(out.Refused, pod+": "+r.Reason)
		}
	}
	for i := range then.Nodes {
		n := &then.Nodes[i]
		out.Bought = append(out.Bought, fmt.Sprintf("%s, %s, $%.4f/h, pool %s, for %s", n.InstanceType, n.CapacityType, n.PricePerHour, n.Pool, podsOf(len(n.Pods))))
	}
	return out, nil
}

func podsOf(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}
