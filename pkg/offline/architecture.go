package offline

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// maxNamed is how many workloads a warning names.
const maxNamed = 5

// openArchitectures warns of pools that leave the architecture open and have nodes planned that may be arm64, for pods that name no
// architecture either. Whether an image has a manifest for arm64 only a registry can tell; a container without one fails on the node.
func openArchitectures(plan *capacity.Plan) []string {
	mayBeARM := map[string]*capacity.Pool{} // by planned node
	for _, n := range plan.Nodes {
		if r, ok := n.Pool.Requirements[corev1.LabelArchStable]; ok && !r.Has("amd64") {
			continue // it has been decided
		}
		if slices.ContainsFunc(n.Offers, func(o capacity.NodeOffer) bool { return o.Type.Labels[corev1.LabelArchStable] == "arm64" }) {
			mayBeARM[n.ID] = n.Pool
		}
	}
	var pools []string
	silent := map[string][]string{} // workloads that name no architecture, by pool
	for _, pl := range plan.Placements {
		pool := mayBeARM[pl.Node]
		if pool == nil || !slices.ContainsFunc(pl.Class.Terms, withoutArchitecture) && len(pl.Class.Terms) > 0 {
			continue
		}
		name := workload(PodName{pl.Pod.Namespace, pl.Pod.Name}, pl.Class)
		if silent[pool.Name] == nil {
			pools = append(pools, pool.Name)
		}
		if !slices.Contains(silent[pool.Name], name) {
			silent[pool.Name] = append(silent[pool.Name], name)
		}
	}
	slices.Sort(pools)
	var out []string
	for _, pool := range pools {
		named, more := silent[pool], ""
		if n := len(named) - maxNamed; n > 0 {
			named, more = named[:maxNamed], fmt.Sprintf(" and %d more", n)
		}
		out = append(out, fmt.Sprintf("pool %s leaves kubernetes.io/arch open, and pods of %s%s don't ask for one: they may run on arm64. Whether their images are made for it is not known here; "+
			"if not, have the pool or the pods ask for amd64", pool, strings.Join(named, ", "), more))
	}
	return out
}

func withoutArchitecture(term capacity.Requirements) bool {
	_, ok := term[corev1.LabelArchStable]
	return !ok
}
