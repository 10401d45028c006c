package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// affinity is the kind of constraint that a pod affinity term makes.
type affinity struct{}

// affinities makes one constraint for each topology key of the required terms. Each counts only the pods that match all terms, as
// kube-scheduler does (InterPodAffinity, podMatchesAllAffinityTerms).
func affinities(t *Groups, u *Batch) {
	selectors := map[string]*capacity.PodTerm{}
	for i := range u.Affinity {
		selectors[selectorID(&u.Affinity[i])] = &u.Affinity[i]
	}
	ids := slices.Sorted(maps.Keys(selectors))
	made := map[string]bool{}
	for i := range u.Affinity {
		key := u.Affinity[i].TopologyKey
		if made[key] {
			continue
		}
		made[key] = true
		var all []*capacity.PodTerm
		for _, id := range ids {
			term := *selectors[id]
			term.TopologyKey = key
			all = append(all, &term)
		}
		// A single term has the same group as other constraints with that term.
		id := "term" + key + strings.Join(ids, " and ")
		u.All = append(u.All, Constraint{Kind: affinity{}, Effect: Attracts, Group: t.group(id, all...), Step: required, Rank: i})
	}
}

func preferredAffinities(t *Groups, u *Batch) {
	t.terms(u, u.PreferredAffinity, affinity{}, Attracts, dropPreferredAffinity)
}

// terms makes a constraint of the batch for each of the terms.
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
	case !u.First() && o.Group.total == 0:
		return fmt.Sprintf("no pod on a node with the label %s matches the pod affinity", o.Group.Key)
	case !o.Group.Host:
		return fmt.Sprintf("pod affinity over %s can't be met where nodes can be launched", o.Group.Key)
	case !u.First() || o.Group.total > 0:
		return "no node with the pods it has affinity to has capacity"
	}
	return ""
}

func (affinity) Explain(*Constraint) string { return "pod affinity" }
