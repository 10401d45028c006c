package topology

import (
	"fmt"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// affinity is the kind of pod affinity terms.
type affinity struct{}

func affinities(t *Groups, u *Batch) { t.terms(u, u.Affinity, affinity{}, Attracts, required) }

func preferredAffinities(t *Groups, u *Batch) {
	t.terms(u, u.PreferredAffinity, affinity{}, Attracts, dropPreferredAffinity)
}

// terms makes constraints of terms that select pods.
func (t *Groups) terms(u *Batch, terms []capacity.PodTerm, k kind, e effect, s Step) {
	for i := range terms {
		u.All = append(u.All, Constraint{Kind: k, Effect: e, Group: t.group("term"+termID(&terms[i]), &terms[i]), Step: s, Rank: i})
	}
}

func (affinity) Limit(*Constraint) (int, bool) { return 0, false }

func (affinity) allows(o *Constraint, u *Batch, d int, ok bool) bool {
	return ok && (o.Group.Counts[d] > 0 || u.First())
}

func (affinity) room(o *Constraint, u *Batch, node, k int, _ hosts) int {
	switch {
	case o.Group.Counts[node] > 0:
		return k
	case u.First():
		return min(k, 1) // from the second pod on the count is positive
	}
	return 0
}

func (affinity) Refusal(o *Constraint, u *Batch) string {
	switch {
	case !o.Group.Host:
		return fmt.Sprintf("pod affinity over %s can't be met where nodes can be launched", o.Group.Key)
	case !u.First() || o.Group.total > 0:
		return "no node with the pods it has affinity to has capacity"
	}
	return ""
}

func (affinity) Explain(*Constraint) string { return "pod affinity" }
