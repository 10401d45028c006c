package consolidation

import "slices"

// Nodes that a plan empties together, and new nodes that it launches for their pods, are one move. The sets of such nodes are kept as
// trees: each node knows its parent, a root knows how many existing nodes its set has.

// root returns the root of a node's set.
func (c *cluster) root(at int32) int32 {
	for c.nodes[at].parent != at {
		c.nodes[at].parent = c.nodes[c.nodes[at].parent].parent
		at = c.nodes[at].parent
	}
	return at
}

// join makes two sets one.
func (c *cluster) join(a, b int32) {
	a, b = c.root(a), c.root(b)
	if a == b {
		return
	}
	if a > b { // the root is the first node, so that the result doesn't depend on the order
		a, b = b, a
	}
	c.nodes[b].parent = a
	c.nodes[a].joined += c.nodes[b].joined
}

// roots appends the roots of the sets that a move of these nodes and of all pods on them would join.
func (c *cluster) roots(out []int32, from []int32) []int32 {
	add := func(at int32) {
		if root := c.root(at); !slices.Contains(out, root) {
			out = append(out, root)
		}
	}
	for _, at := range from {
		add(at)
		for _, a := range c.nodes[at].from {
			add(a.origin)
		}
	}
	return out
}

// together returns how many existing nodes would be emptied by a move that joins the sets with these roots and, unless at is -1, the set of node at.
func (c *cluster) together(roots []int32, at int32) int32 {
	n, own := int32(0), int32(-1)
	if at >= 0 {
		own = c.root(at)
		n = c.nodes[own].joined
	}
	for _, root := range roots {
		if root != own {
			n += c.nodes[root].joined
		}
	}
	return n
}
