package planner

import "fmt"

// antiAffinity is the kind of pod anti-affinity terms.
type antiAffinity struct{}

func antiAffinities(t *topology, u *batch) {
	t.terms(u, u.AntiAffinity, antiAffinity{}, repels, required)
}

func preferredAntiAffinities(t *topology, u *batch) {
	t.terms(u, u.PreferredAntiAffinity, antiAffinity{}, repels, dropPreferredAntiAffinity)
}

func (antiAffinity) limit(o *constraint) (int, bool) { return o.own(), o.group.host }

func (antiAffinity) allows(o *constraint, _ *batch, d int, ok bool) bool {
	return !ok || o.group.counts[d] == 0
}

func (antiAffinity) room(o *constraint, _ *batch, node, k int, _ hosts) int {
	return o.within(o.own(), node, k)
}

func (antiAffinity) refusal(o *constraint, _ *batch) string {
	if o.group.host {
		return "" // a new node has no pods yet
	}
	return fmt.Sprintf("pod anti-affinity over %s excludes every domain", o.group.key)
}

func (antiAffinity) explain(*constraint) string { return "pod anti-affinity" }
