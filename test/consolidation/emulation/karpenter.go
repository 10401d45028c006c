package emulation

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
)

const (
	mostCandidates = 100 // of a multi-node command (MaxParallel)
	spotTypes      = 15  // cheaper types that replacing a spot node by another takes (MinInstanceTypesForSpotToSpotConsolidation)
	threshold      = 0.5 // of Balanced: 1/k
)

// Karpenter is Karpenter's consolidation of one cluster.
type Karpenter struct {
	Cluster  *cluster.Cluster
	Balanced bool
	// full is, by class, how many nodes from the first on are known to have no room for it. Capacity is never freed between passes.
	full []int
	// stuck are the nodes for which no command was found, until they get other pods.
	stuck    map[*cluster.Node]bool
	replaced bool
}

// New returns the consolidation of a cluster in which nothing changes but by its commands.
func New(c *cluster.Cluster, balanced bool) *Karpenter {
	return &Karpenter{Cluster: c, Balanced: balanced, full: make([]int, len(c.World.Classes)), stuck: map[*cluster.Node]bool{}}
}

// Command is a decision: the candidates are removed, and a node is launched unless Launch is negative.
type Command struct {
	Candidates []*cluster.Node
	// Place are pods placed on other nodes; Load are those for the node to be launched.
	Place  []Placement
	Load   []cluster.Share
	Launch int
	Saves  float64
}

// Placement is a pod on another node.
type Placement struct {
	Node  *cluster.Node
	Class int
}

// Candidates returns the nodes with pods in the order in which they are tried.
func (k *Karpenter) Candidates() []*cluster.Node {
	var out []*cluster.Node
	for _, n := range k.Cluster.Nodes {
		if !n.Gone && n.Count > 0 {
			out = append(out, n)
		}
	}
	worth := func(n *cluster.Node) float64 { return k.Cluster.Price(n) / float64(1+n.Count) }
	slices.SortStableFunc(out, func(a, b *cluster.Node) int { return cmp.Compare(worth(b), worth(a)) })
	return out
}

// Decide makes one pass. It returns nil if there is nothing to do.
func (k *Karpenter) Decide(candidates []*cluster.Node, budget int) *Command {
	if c := k.multiNode(candidates[:min(mostCandidates, len(candidates), budget)]); c != nil {
		return c
	}
	for _, again := range []bool{false, true} {
		if again && !k.replaced {
			break // nodes that were launched may have room for the pods of nodes that were stuck
		}
		for _, n := range candidates {
			if k.stuck[n] && !again {
				continue
			}
			if c := k.try([]*cluster.Node{n}); c != nil {
				return c
			}
			k.stuck[n] = true
		}
	}
	return nil
}

func (k *Karpenter) multiNode(candidates []*cluster.Node) (best *Command) {
	for low, high := 2, len(candidates); low <= high; {
		middle := (low + high) / 2
		if c := k.try(candidates[:middle]); c != nil {
			best, low = c, middle+1
		} else {
			high = middle - 1
		}
	}
	return best
}

// Apply carries a command out.
func (k *Karpenter) Apply(c *Command) (launched *cluster.Node) {
	for _, n := range c.Candidates {
		n.Gone = true
	}
	for _, p := range c.Place {
		k.Cluster.Put(p.Node, p.Class, 1)
		delete(k.stuck, p.Node)
	}
	if c.Launch >= 0 {
		k.replaced = true
		launched = k.Cluster.Add(c.Launch, c.Load)
	}
	return launched
}

// Tally is what consolidation has cost.
type Tally struct{ Commands, Moved int }

// Run consolidates until there is nothing to do, a tenth of the nodes at a time.
func (k *Karpenter) Run() (t Tally) {
	for {
		c := k.Decide(k.Candidates(), int(math.Ceil(0.1*float64(k.Cluster.Live()))))
		if c == nil {
			return t
		}
		for _, n := range c.Candidates {
			t.Moved += n.Count
		}
		t.Commands++
		k.Apply(c)
	}
}

// try returns the command that removes the candidates, if it is possible, saves money and is approved.
func (k *Karpenter) try(candidates []*cluster.Node) *Command {
	c := &Command{Candidates: candidates, Launch: -1}
	total := 0.0
	for _, n := range candidates {
		total += k.Cluster.Price(n)
	}
	load, ok := k.place(c)
	if !ok {
		return nil
	}
	c.Saves = total
	if len(c.Load) > 0 {
		if c.Launch = k.launch(candidates, load, total); c.Launch < 0 {
			return nil
		}
		c.Saves -= k.Cluster.World.Price[c.Launch]
	}
	if k.Balanced && !k.approve(c) {
		return nil
	}
	return c
}

// place places the candidates' pods, largest first, on the first node with room for them. The others are the new node's load; it isn't ok if no type
// holds them.
func (k *Karpenter) place(c *Command) (load cluster.Vector, ok bool) {
	w := k.Cluster.World
	leaving := map[*cluster.Node]bool{}
	counts := map[int]int{}
	var order []int
	for _, n := range c.Candidates {
		leaving[n] = true
		for _, s := range n.Pods {
			if counts[s.Class] == 0 {
				order = append(order, s.Class)
			}
			counts[s.Class] += s.Count
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := w.Classes[a].Need, w.Classes[b].Need
		return cmp.Or(cmp.Compare(y[0], x[0]), cmp.Compare(y[1], x[1]), a-b)
	})
	taken := map[*cluster.Node]cluster.Vector{}
	for _, class := range order {
		need := w.Classes[class].Need
		at, left := k.fill(c, class, counts[class], leaving, taken), 0
		if left = counts[class] - at; left == 0 {
			continue
		}
		for d := range load {
			load[d] += need[d] * int64(left)
		}
		c.Load = append(c.Load, cluster.Share{Class: class, Count: left})
		if !slices.ContainsFunc(w.Offers, func(o int) bool { return w.Types[o].Room.Holds(load) }) {
			return load, false // a second node would have to be launched
		}
	}
	return load, true
}

// fill places up to count pods of a class on existing nodes, and returns how many.
func (k *Karpenter) fill(c *Command, class, count int, leaving map[*cluster.Node]bool, taken map[*cluster.Node]cluster.Vector) (placed int) {
	need := k.Cluster.World.Classes[class].Need
	known := true // all nodes so far have no room
	for at := k.full[class]; at < len(k.Cluster.Nodes) && placed < count; at++ {
		n := k.Cluster.Nodes[at]
		if n.Gone || !n.Free.Holds(need) {
			if known {
				k.full[class] = at + 1
			}
			continue
		}
		known = false
		if leaving[n] {
			continue
		}
		used := taken[n]
		for placed < count {
			for d := range used {
				used[d] += need[d]
			}
			if !n.Free.Holds(used) {
				for d := range used {
					used[d] -= need[d]
				}
				break
			}
			c.Place = append(c.Place, Placement{Node: n, Class: class})
			placed++
		}
		taken[n] = used
	}
	return placed
}

// launch returns the type to launch for a load; -1: none is cheap enough.
func (k *Karpenter) launch(candidates []*cluster.Node, load cluster.Vector, total float64) int {
	w := k.Cluster.World
	at := slices.IndexFunc(w.Offers, func(o int) bool { return w.Types[o].Room.Holds(load) })
	if at < 0 || w.Price[w.Offers[at]] >= total {
		return -1
	}
	best := w.Offers[at]
	if len(candidates) > 1 {
		for _, n := range candidates {
			if price := w.Price[n.Type]; w.Types[n.Type].Room.Holds(load) && price < total && w.Price[best] >= price {
				return -1
			}
		}
	} else if w.Spot {
		cheaper := sort.Search(len(w.ByPrice), func(i int) bool { return w.Price[w.ByPrice[i]] >= total })
		fit := 0
		for _, t := range w.ByPrice[:cheaper] {
			if w.Types[t].Room.Holds(load) {
				fit++
			}
		}
		if fit < spotTypes {
			return -1
		}
	}
	return best
}

// approve is the rule of policy Balanced.
func (k *Karpenter) approve(c *Command) bool {
	cost, disruption, mine := 0.0, 0.0, 0.0
	for _, n := range k.Cluster.Nodes {
		if !n.Gone {
			cost += k.Cluster.Price(n)
			disruption += float64(1 + n.Count)
		}
	}
	for _, n := range c.Candidates {
		mine += float64(1 + n.Count)
	}
	return c.Saves/cost >= threshold*mine/disruption
}
