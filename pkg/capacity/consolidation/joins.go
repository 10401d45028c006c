package consolidation

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

// together returns how many existing nodes a move of two sets would empty.
func (c *cluster) together(a, b int32) int32 {
	a, b = c.root(a), c.root(b)
	if a == b {
		return c.nodes[a].joined
	}
	return c.nodes[a].joined + c.nodes[b].joined
}
