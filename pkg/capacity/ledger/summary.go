package ledger

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
