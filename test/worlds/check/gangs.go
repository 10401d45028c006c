package check

import (
	"fmt"
	"maps"
	"slices"
)

// gangLabel is the label with the name of a pod's group.
const gangLabel = "scheduling.x-k8s.io/pod-group"

// judgeGangs finds groups of which only a part was bound.
func (h *history) judgeGangs(r *Report, gangs map[string]int) {
	bound := map[string]int{}
	for _, p := range h.pods {
		if g := p.last.Labels[gangLabel]; g != "" && p.bound != 0 {
			bound[g]++
		}
	}
	for _, g := range slices.Sorted(maps.Keys(gangs)) {
		if n := bound[g]; n > 0 && n < gangs[g] {
			r.Odd = append(r.Odd, fmt.Sprintf("%d pods of the gang %s were bound, and they can't run with less than %d", n, g, gangs[g]))
		}
	}
}
