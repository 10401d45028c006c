package topology

// Constraint is a constraint of a pod batch on where its pods may be, which depends on where other pods are.
type Constraint struct {
	Kind   kind
	Effect effect
	Group  *Group
	// Step is the kind of preference that the constraint is, or required. Rank is its position among the batch's constraints of that Step.
	Step Step
	Rank int
	// skew is how many more pods a domain may have than the one with the fewest, if the constraint spreads pods.
	skew int
	// self: the batch's own pods are counted, too.
	self bool
}

// kind is a kind of constraint, such as pod affinity; its methods say what a constraint o of this kind allows. To add one, write its file, and
// add the function that makes its constraints to kinds; preferences also need a step (preference.go).
type kind interface {
	// Limit returns how many of the pods that its group counts may be on a node that has pods of the batch. ok is false if the constraint doesn't
	// limit that.
	Limit(o *Constraint) (n int, ok bool)
	// allows reports whether a constraint over a label allows one more pod of the batch in a domain; ok: the nodes there have the label.
	allows(o *Constraint, u *Batch, domain int, ok bool) bool
	// room returns how many more pods of the batch, at most k, a constraint over host names allows on a node.
	room(o *Constraint, u *Batch, node, k int, all hosts) int
	// Refusal returns the text that no node which could be launched satisfies the constraint; "": this can't be why pods are refused.
	Refusal(o *Constraint, u *Batch) string
	// Explain returns the name of the constraint for explanations of a plan.
	Explain(o *Constraint) string
}

// kinds make the constraints of the pod batches. A batch has them in this order.
var kinds = []func(*Groups, []*Batch){
	byBatch(spreadConstraints, affinities, antiAffinities, preferredAffinities, preferredAntiAffinities),
	hostPorts,
}

// byBatch makes the constraints of a batch, of all these kinds, before those of the next one.
func byBatch(kinds ...func(*Groups, *Batch)) func(*Groups, []*Batch) {
	return func(t *Groups, batches []*Batch) {
		for _, u := range batches {
			for _, constraints := range kinds {
				constraints(t, u)
			}
		}
	}
}

// effect is what a constraint means for other pods.
type effect int

const (
	Limits   effect = iota // it limits how many of the counted pods one node may hold
	Spreads                // it keeps the number of counted pods even among domains
	Attracts               // the constraint's own pods must be in domains with counted pods
	Repels                 // the constraint's own pods must not be in a domain with counted pods, nor these in a domain with its own
)

// hosts knows all nodes.
type hosts interface {
	// Least returns the least count on any node that a spread group over host names considers; 0 if there are fewer than minDomains.
	Least(g *Group, minDomains int) int
}

func (o *Constraint) Hard() bool { return o.Step == required }

// Excludes reports whether pods that the group counts are kept off the domains of the batch's pods.
func (o *Constraint) Excludes() bool { return o.Effect == Repels && o.Hard() }

// Depends reports whether the constraint holds only if other pods are where the plan has them. One that repels pods, or that limits or
// evens them out by node, holds no matter which of the nodes exist.
func (o *Constraint) Depends() bool {
	return o.Hard() && (o.Effect == Attracts || o.Effect == Spreads && !o.Group.Host)
}

// own returns by how much the group's count rises with one more pod of the batch: 1 if the group counts the batch's own pods, else 0.
func (o *Constraint) own() int {
	if o.self {
		return 1
	}
	return 0
}

// within returns how many more pods of the batch, at most k, a node may get if its count must not exceed the limit.
func (o *Constraint) within(limit, node, k int) int {
	switch {
	case o.self:
		return min(k, max(0, limit-o.Group.Counts[node]))
	case o.Group.Counts[node] > limit:
		return 0
	}
	return k
}
