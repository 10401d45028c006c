package topology

import "fmt"

// antiAffinity is the kind of constraint that a pod anti-affinity term makes.
type antiAffinity struct{}

func antiAffinities(t *Groups, u *Batch) {
	t.terms(u, u.AntiAffinity, antiAffinity{}, Repels, required)
}

func preferredAntiAffinities(t *Groups, u *Batch) {
	t.terms(u, u.PreferredAntiAffinity, antiAffinity{}, Repels, dropPreferredAntiAffinity)
}

func (antiAffinity) Limit(o *Constraint) (int, bool) { return o.own(), o.Group.Host }

func (antiAffinity) allows(o *Constraint, _ *Batch, d int, ok bool) bool {
	return !ok || o.Group.Counts[d] == 0
}

func (antiAffinity) room(o *Constraint, _ *Batch, node, k int, _ hosts) int {
	return o.within(o.own(), node, k)
}

func (antiAffinity) Refusal(o *Constraint, _ *Batch) string {
	if o.Group.Host {
		return "" // a new node has no pods yet
	}
	return fmt.Sprintf("pod anti-affinity over %s excludes every domain", o.Group.Key)
}

func (antiAffinity) Explain(*Constraint) string { return "pod anti-affinity" }
