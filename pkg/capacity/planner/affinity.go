package planner

import (
	"fmt"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// affinity is the kind of pod affinity terms.
type affinity struct{}

func affinities(t *topology, u *batch) { t.terms(u, u.Affinity, affinity{}, attracts, required) }

func preferredAffinities(t *topology, u *batch) {
	t.terms(u, u.PreferredAffinity, affinity{}, attracts, dropPreferredAffinity)
}

// terms makes constraints of terms that select pods.
func (t *topology) terms(u *batch, terms []capacity.PodTerm, k kind, e effect, s step) {
	for i := range terms {
		u.all = append(u.all, constraint{kind: k, effect: e, group: t.group("term"+termID(&terms[i]), &terms[i]), step: s, rank: i})
	}
}

func (affinity) limit(*constraint) (int, bool) { return 0, false }

func (affinity) allows(o *constraint, u *batch, d int, ok bool) bool {
	return ok && (o.group.counts[d] > 0 || u.first())
}

func (affinity) room(o *constraint, u *batch, node, k int, _ hosts) int {
	switch {
	case o.group.counts[node] > 0:
		return k
	case u.first():
		return min(k, 1) // from the second pod on the count is positive
	}
	return 0
}

func (affinity) refusal(o *constraint, u *batch) string {
	switch {
	case !o.group.host:
		return fmt.Sprintf("pod affinity over %s can't be met where nodes can be launched", o.group.key)
	case !u.first() || o.group.total > 0:
		return "no node with the pods it has affinity to has capacity"
	}
	return ""
}

func (affinity) explain(*constraint) string { return "pod affinity" }
