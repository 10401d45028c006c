package ledger

import "github.com/dovetail-scheduler/dovetail/pkg/capacity"

// Summary is what there is, in numbers.
type Summary struct {
	// Pods by state, as State.String has it.
	Pods map[string]int `json:"pods"`
	// Nodes that are watched: those on their way, and those with promises or fences.
	Nodes int `json:"nodes"`
	// Slots are promises on them, Ready those that may be used.
	Slots int `json:"slots"`
	Ready int `json:"ready"`
}

// Summary counts.
func (l *Ledger) Summary() Summary {
	out := Summary{Pods: map[string]int{}, Nodes: len(l.nodes)}
	for _, p := range l.pods {
		out.Pods[p.state.String()]++
	}
	for _, n := range l.nodes {
		out.Slots += len(n.slots)
		for _, s := range n.slots {
			if s.ready {
				out.Ready++
			}
		}
	}
	return out
}

// NotInitialized is how many nodes of claims are on their way, from their plans on.
func (l *Ledger) NotInitialized() (n int) {
	for _, node := range l.nodes {
		if node.claim != "" && !node.status.Initialized {
			n++
		}
	}
	return n
}

// Some are up to n of the pods, others each time: who wants to see all of them over time need not hold everybody else up for long.
func (l *Ledger) Some(n int) []capacity.PodRef {
	out := make([]capacity.PodRef, 0, min(n, len(l.pods)))
	for _, p := range l.pods { // Go begins anywhere
		if len(out) == n {
			break
		}
		out = append(out, p.ref)
	}
	return out
}
