package cluster

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// Share is a number of pods of one class.
type Share struct{ Class, Count int }

// Node is a node and the pods on it.
type Node struct {
	ID   int
	Type int
	Free Vector
	// Pods are by class, Count is how many there are.
	Pods  []Share
	Count int
	// Gone: it has been terminated.
	Gone bool
}

// Of returns how many pods of a class the node runs.
func (n *Node) Of(class int) int {
	for _, s := range n.Pods {
		if s.Class == class {
			return s.Count
		}
	}
	return 0
}

// Cluster is a set of nodes.
type Cluster struct {
	World *World
	Nodes []*Node
	next  int
}

// Build returns a cluster that runs all of the world's pods on new nodes.
func Build(w *World, effort int) *Cluster {
	c := &Cluster{World: w}
	counts := make([]int, len(w.Classes))
	for i := range counts {
		counts[i] = w.Classes[i].Count
	}
	c.Buy(w.Pack(counts, effort))
	return c
}

// Add buys a node.
func (c *Cluster) Add(typ int, pods []Share) *Node {
	n := &Node{ID: c.next, Type: typ, Free: c.World.Types[typ].Room}
	c.next++
	for _, s := range pods {
		c.Put(n, s.Class, s.Count)
	}
	c.Nodes = append(c.Nodes, n)
	return n
}

// Buy buys the nodes of a packing.
func (c *Cluster) Buy(r *packing.Result) (bought []*Node) {
	for _, l := range r.Loads {
		for range l.Times {
			var pods []Share
			for _, s := range l.Shares {
				pods = append(pods, Share{s.Item, s.Count})
			}
			bought = append(bought, c.Add(c.World.Offers[l.Candidate], pods))
		}
	}
	return bought
}

// Put adds pods to a node; a negative count takes them off.
func (c *Cluster) Put(n *Node, class, count int) {
	if count == 0 {
		return
	}
	n.Count += count
	for d, need := range c.World.Classes[class].Need {
		n.Free[d] -= need * int64(count)
	}
	at, found := slices.BinarySearchFunc(n.Pods, class, func(s Share, class int) int { return s.Class - class })
	if !found {
		n.Pods = slices.Insert(n.Pods, at, Share{Class: class})
	}
	if n.Pods[at].Count += count; n.Pods[at].Count == 0 {
		n.Pods = slices.Delete(n.Pods, at, at+1)
	}
}

// Price returns what a node costs now, in $/h.
func (c *Cluster) Price(n *Node) float64 { return c.World.Price[n.Type] }

// Cost returns what all nodes cost now, in $/h.
func (c *Cluster) Cost() (sum float64) {
	for _, n := range c.Nodes {
		if !n.Gone {
			sum += c.Price(n)
		}
	}
	return sum
}

// Live returns how many nodes there are.
func (c *Cluster) Live() (count int) {
	for _, n := range c.Nodes {
		if !n.Gone {
			count++
		}
	}
	return count
}

// Counts returns how many pods of each class there are.
func (c *Cluster) Counts() []int {
	out := make([]int, len(c.World.Classes))
	for _, n := range c.Nodes {
		if !n.Gone {
			for _, s := range n.Pods {
				out[s.Class] += s.Count
			}
		}
	}
	return out
}

// PodCount returns how many pods there are.
func (c *Cluster) PodCount() (count int) {
	for _, n := range c.Nodes {
		if !n.Gone {
			count += n.Count
		}
	}
	return count
}

// Clone returns a copy of the nodes that live.
func (c *Cluster) Clone() *Cluster {
	out := &Cluster{World: c.World, next: c.next}
	for _, n := range c.Nodes {
		if !n.Gone {
			m := *n
			m.Pods = slices.Clone(n.Pods)
			out.Nodes = append(out.Nodes, &m)
		}
	}
	return out
}

// Sweep forgets the nodes that are gone.
func (c *Cluster) Sweep() { c.Nodes = slices.DeleteFunc(c.Nodes, func(n *Node) bool { return n.Gone }) }
