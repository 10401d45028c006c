package ledger

import "github.com/dovetail-scheduler/dovetail/pkg/capacity"

// Summary counts what the ledger holds.
type Summary struct {
	// Pods is the number of pods by state; the keys are those of State.String.
	Pods map[string]int `json:"pods"`
	// Nodes is how many nodes are watched: those in flight, and those with reservations or cordons.
	Nodes int `json:"nodes"`
	// Slots is how many reservations there are on these nodes, Ready on how many of the reservations pods may be bound now.
	Slots int `json:"slots"`
	Ready int `json:"ready"`
}

// Summary returns the counts.
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

// NotInitialized returns how many nodes of claims are not initialized, including those not launched yet.
func (l *Ledger) NotInitialized() (n int) {
	for _, node := range l.nodes {
		if node.claim != "" && !node.status.Initialized {
			n++
		}
	}
	return n
}

// Some returns up to n of the pods, different ones on each call: so a caller can see all pods over time and never hold the lock for long.
func (l *Ledger) Some(n int) []capacity.PodRef {
	out := make([]capacity.PodRef, 0, min(n, len(l.pods)))
	for _, p := range l.pods { // map iteration starts anywhere
		if len(out) == n {
			break
		}
		out = append(out, p.ref)
	}
	return out
}
