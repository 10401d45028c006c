package burst

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// full: a node whose pods pay at least this part of its price (PlannedNode.Filled) is launched although more pods come. They could make it no more
// than somewhat cheaper.
const full = 0.95

// Hold removes from a plan the nodes that wait for more pods, with their placements, and returns how many. Their pods stay queued, for as long as
// no pod waits longer than the window's longest. While no more pods are likely to come, it removes nothing.
//
// Of pods of the same class, those that have waited longest are placed on the nodes that stay. A node also stays if its placements depend on
// others (Placement.Group), because the plan without them isn't verified, and if its pods outrank those of another node, which would otherwise take
// what a limit leaves for both.
func (w *Window) Hold(plan *capacity.Plan, waiting []ledger.Waiting) int {
	if len(plan.Nodes) == 0 || !w.arrivals.More() {
		return 0
	}
	since := make(map[types.UID]time.Time, len(waiting))
	for _, p := range waiting {
		since[p.Ref.UID] = p.Since
	}
	filled := map[string]float64{} // of the nodes that may wait
	for _, n := range plan.Nodes {
		if n.Filled > 0 && n.Filled < full {
			filled[n.ID] = n.Filled
		}
	}
	ranks, lowest := ranksOf(plan)
	for _, pl := range plan.Placements {
		if pl.Group != 0 || pl.Gang != nil || ranks[pl.Node] > lowest {
			delete(filled, pl.Node)
		}
	}
	if len(filled) == 0 {
		return 0
	}
	oldestFirst(plan, since, filled)
	oldest := map[string]time.Time{} // anticipated pods don't wait yet
	for _, pl := range plan.Placements {
		at, exists := since[pl.Pod.UID]
		if !exists {
			continue
		}
		if first, ok := oldest[pl.Node]; !ok || at.Before(first) {
			oldest[pl.Node] = at
		}
	}
	now := w.clock.Now()
	for id := range filled {
		at, waits := oldest[id]
		switch {
		case !waits:
		case now.Sub(at) > w.longest-w.longest/3: // otherwise there would be a plan for each pod that has waited long enough
			delete(filled, id)
		case w.until.IsZero() || at.Add(w.longest).Before(w.until):
			w.until = at.Add(w.longest)
		}
	}
	remove(plan, filled)
	return len(filled)
}

// Release forgets the tail: the nodes that Hold has removed are launched after all.
func (w *Window) Release() { w.until = time.Time{} }

// ranksOf returns the highest priority of a pod by new node, and the lowest of these.
func ranksOf(plan *capacity.Plan) (ranks map[string]int32, lowest int32) {
	ranks, lowest = map[string]int32{}, math.MaxInt32
	for _, pl := range plan.Placements {
		if rank, ok := ranks[pl.Node]; !ok || pl.Class.Priority > rank {
			ranks[pl.Node] = pl.Class.Priority
		}
	}
	for _, n := range plan.Nodes {
		lowest = min(lowest, ranks[n.ID])
	}
	return ranks, lowest
}

// oldestFirst exchanges pods of the same class among a plan's new nodes: those that have waited longest get the nodes that don't wait, then the
// fullest of the others. Anticipated pods come last.
func oldestFirst(plan *capacity.Plan, since map[types.UID]time.Time, filled map[string]float64) {
	planned := map[string]bool{}
	for _, n := range plan.Nodes {
		planned[n.ID] = true
	}
	classes := map[capacity.ClassKey][]int{} // their placements
	for i, pl := range plan.Placements {
		if planned[pl.Node] && pl.Group == 0 && pl.Gang == nil && exchangeable(pl.Class) {
			classes[pl.Class.Key] = append(classes[pl.Class.Key], i)
		}
	}
	order := func(node string) float64 {
		if part, waits := filled[node]; waits {
			return part
		}
		return 1
	}
	for _, places := range classes {
		pods := make([]capacity.Placement, 0, len(places))
		for _, i := range places {
			pods = append(pods, plan.Placements[i])
		}
		slices.SortStableFunc(pods, func(a, b capacity.Placement) int {
			x, waits := since[a.Pod.UID]
			y, also := since[b.Pod.UID]
			if !waits || !also {
				return cmp.Compare(btoi(also), btoi(waits))
			}
			return x.Compare(y)
		})
		slices.SortStableFunc(places, func(i, j int) int {
			return cmp.Compare(order(plan.Placements[j].Node), order(plan.Placements[i].Node))
		})
		for k, i := range places {
			to := &plan.Placements[i]
			to.Class, to.Pod, to.Owner = pods[k].Class, pods[k].Pod, pods[k].Owner
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// exchangeable reports whether pods of the class are alike also in what only the pod itself knows: the volumes and devices that it claims.
func exchangeable(c *capacity.Class) bool {
	return c.Pod != nil && len(c.Pod.Spec.ResourceClaims) == 0 && !slices.ContainsFunc(c.Pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil
	})
}

// remove removes nodes and their placements from a plan.
func remove(plan *capacity.Plan, nodes map[string]float64) {
	if len(nodes) == 0 {
		return
	}
	plan.Nodes = slices.DeleteFunc(plan.Nodes, func(n *capacity.PlannedNode) bool {
		_, waits := nodes[n.ID]
		return waits
	})
	plan.Placements = slices.DeleteFunc(plan.Placements, func(pl capacity.Placement) bool {
		_, waits := nodes[pl.Node]
		return waits
	})
	plan.CostPerHour, plan.LowerBound = 0, 0 // the bound was for all of them
	for _, n := range plan.Nodes {
		plan.CostPerHour += n.Price
	}
}
