package planner

// constraint is a constraint of a pod batch on where its pods may be, which depends on where other pods are.
type constraint struct {
	kind   kind
	effect effect
	group  *group
	// step is the preference that it is, required if it is none; rank is its position among those.
	step step
	rank int
	// skew is how many more pods a domain may have than the one with the fewest, if the constraint spreads pods.
	skew int
	// self: the batch's own pods are counted, too.
	self bool
}

// kind answers for a constraint of its kind. To add one, write its file, and add the function that makes its constraints to kinds.
type kind interface {
	// limit returns how many counted pods a node with the batch's pods may have. ok is false if the constraint isn't such a limit.
	limit(o *constraint) (n int, ok bool)
	// allows reports whether a constraint over a label allows one more pod of the batch in a domain; ok: the nodes there have the label.
	allows(o *constraint, u *batch, domain int, ok bool) bool
	// room returns how many more pods of the batch, at most k, a constraint over nodes allows on one.
	room(o *constraint, u *batch, node, k int, all hosts) int
	// refusal says that no node that could be launched satisfies the constraint; "": that can't be the reason.
	refusal(o *constraint, u *batch) string
	// explain names the constraint.
	explain(o *constraint) string
}

// kinds make the constraints of the pod batches. A batch has them in this order.
var kinds = []func(*topology, []*batch){
	byBatch(spreadConstraints, affinities, antiAffinities, preferredAffinities, preferredAntiAffinities),
	hostPorts,
}

// byBatch makes the constraints of a batch, of all these kinds, before those of the next one.
func byBatch(kinds ...func(*topology, *batch)) func(*topology, []*batch) {
	return func(t *topology, batches []*batch) {
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
	limits   effect = iota // it limits what one node or domain may hold
	spreads                // it keeps counts even
	attracts               // its pods must be where the counted ones are
	repels                 // its pods must not be where the counted ones are, nor the counted ones where they are
)

// hosts knows all nodes.
type hosts interface {
	// least returns the least count on any node that a spread group over host names considers; 0 if there are fewer than minDomains.
	least(g *group, minDomains int) int
}

func (o *constraint) hard() bool { return o.step == required }

// excludes reports whether pods that the group counts are kept off the domains of the batch's pods.
func (o *constraint) excludes() bool { return o.effect == repels && o.hard() }

// depends reports whether the constraint holds only if other pods are where the plan has them. One that repels pods, or that limits or
// evens them out by node, holds no matter which of the nodes exist.
func (o *constraint) depends() bool {
	return o.hard() && (o.effect == attracts || o.effect == spreads && !o.group.host)
}

// own returns how many pods one more of the batch's adds to the count.
func (o *constraint) own() int {
	if o.self {
		return 1
	}
	return 0
}

// within returns how many more pods, at most k, keep a node's count at the limit or below.
func (o *constraint) within(limit, node, k int) int {
	switch {
	case o.self:
		return min(k, max(0, limit-o.group.counts[node]))
	case o.group.counts[node] > limit:
		return 0
	}
	return k
}
